"""The data sets steep knows, each declared in its own file."""
