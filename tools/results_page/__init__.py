"""Writes this repository's results page from the rows in results/: `python -m tools.results_page`."""
