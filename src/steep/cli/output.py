"""What every command prints with: the console of messages, bars, tables, times; and a grid at work in the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from steep.bench.local import Outcome, Tick
from steep.bench.recipe import Plan
from steep.bench.rows import grouped
from steep.bench.store import Store
from steep.report.words import duration


def console() -> Console:
    """Make the console for messages: standard error, where brackets and paths are text and a number has no colour."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False, markup=False)


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
def text_bar(screen: Console) -> Iterator[Callable[[str, float, float, float | None], None]]:
    """Draw one bar with a text, for each (text, done, total, milestone); without a terminal, a line per milestone."""
    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    last: float | None = None
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def report(text: str, done: float, total: float, milestone: float | None) -> None:
            nonlocal last
            progress.update(task, description=text, completed=done, total=total)
            if not screen.is_terminal and milestone is not None and milestone != last:
                last = milestone
                screen.print(text)

        yield report


@contextlib.contextmanager
def running(screen: Console, grid: Plan, rows: Store) -> Iterator[Callable[[Tick], None]]:
    """Show the progress of a grid in the block, without a terminal at every tenth; after Ctrl-C, say what is stored."""
    for note in rows.notes:
        screen.print(f"{rows.path}: {note}")
    try:
        with text_bar(screen) as draw:

            def report(tick: Tick) -> None:
                tenth = 10 * tick.done // max(1, tick.total) if tick.accuracy is not None and tick.share >= 1 else None
                text = f"{tick.done}/{tick.total} cells; {_words(tick)}"
                draw(text, tick.done + (tick.share if tick.share < 1 else 0), tick.total, tenth)

            yield report
    except KeyboardInterrupt:
        stored = f"{sum(cell.key() in rows for cell in grid.cells)} of {len(grid.cells)} cells are in {rows.path}"
        screen.print(f"stopped; {stored}, the same command goes on from there")
        raise


def _words(tick: Tick) -> str:
    """Say which cell is at work, its accuracy and the time left."""
    left = "" if tick.seconds_left is None else f"{duration(tick.seconds_left)} left"
    work = "waiting for cells of another process" if 0 < tick.done < tick.total else ""
    if tick.cell is not None:
        work = tick.cell.name + (f" {tick.accuracy:.1%}" if tick.accuracy is not None else "")
    return " · ".join(filter(None, (work, left)))


def print_failures(screen: Console, outcome: Outcome) -> None:
    """Name the cells that failed, a line for each reason."""
    for reason, failed in grouped(outcome.failed, lambda pair: pair[1]).items():
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        screen.print(f"  {failed[0][0].name}{more}: {reason}", style="red")


def print_table(table: Table) -> None:
    """Print a table to standard output, as wide as the terminal or, into a pipe, as wide as it needs."""
    screen = Console(highlight=False, emoji=False)
    if not screen.is_terminal:
        screen = Console(width=max(80, screen.measure(table, options=screen.options.update(width=1000)).maximum))
    screen.print(table)
