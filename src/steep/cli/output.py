"""What every command prints with: the console of messages, one progress bar, tables, times."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table


def console() -> Console:
    """Make the console for messages: standard error, where a path stays one word and a number has no colour."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


@contextlib.contextmanager
def progress_bar(screen: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Draw a bar for each (what, done, total) that is reported; without a terminal nothing is drawn."""
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for other in tasks.values():  # one bar at a time
                    progress.update(other, visible=False)
                tasks[what] = progress.add_task(what, total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        yield report


@contextlib.contextmanager
def text_bar(screen: Console) -> Iterator[Callable[[str, float, float], None]]:
    """Draw one bar with a text of the caller's, for each (text, done, total); without a terminal nothing is drawn."""
    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("", total=None)
        yield lambda text, done, total: progress.update(task, description=text, completed=done, total=total)


def print_table(table: Table) -> None:
    """Print a table to standard output, as wide as the terminal or, into a pipe, as wide as it needs."""
    screen = Console(highlight=False, emoji=False)
    if not screen.is_terminal:
        screen = Console(width=max(80, screen.measure(table, options=screen.options.update(width=1000)).maximum))
    screen.print(table)


def duration(seconds: float) -> str:
    """Write a time the way people say it.

    >>> duration(5), duration(185), duration(7400)
    ('5 s', '3 min', '2.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
