"""Print a table, as wide as the terminal or, into a pipe, as wide as it needs."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def show(table: Table) -> None:
    """Print `table` to standard output."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(80, console.measure(table, options=console.options.update(width=1000)).maximum))
    console.print(table)
