"""One progress bar for every command: the library reports (what, done, total), this draws it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Draw a bar for each thing reported; without a terminal nothing is drawn."""
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for other in tasks.values():  # one bar at a time
                    progress.update(other, visible=False)
                tasks[what] = progress.add_task(what, total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        yield report
