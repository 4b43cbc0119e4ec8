"""Other people's frameworks: Lightning, and loggers. Nothing here is imported unless its user does so."""
