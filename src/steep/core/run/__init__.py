"""One step on the device: guarded, recorded, undone exactly."""
