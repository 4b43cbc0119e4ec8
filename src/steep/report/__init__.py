"""Reports from stored rows: numbers and tables here, from JSON alone. Nothing in this folder imports torch."""
