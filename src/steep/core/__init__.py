"""What every method stands on: the adapter, normalisation layers, losses, the Langevin sampler."""
