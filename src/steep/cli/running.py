"""A grid at work in the terminal: its progress, its failures, and what Ctrl-C leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console

from steep.bench.local import Outcome, Progress, Tick
from steep.bench.recipe import Plan
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.cli.output import duration, text_bar


@contextlib.contextmanager
def running(screen: Console, grid: Plan, rows: Store) -> Iterator[Progress]:
    """Show the progress of a grid in the block; after Ctrl-C, say what is stored."""
    for note in rows.notes:
        screen.print(f"{rows.path}: {note}", markup=False)
    try:
        with _progress(screen) as progress:
            yield progress
    except KeyboardInterrupt:
        stored = sum(cell.key() in rows for cell in grid.cells)
        screen.print(
            f"stopped; {stored} of {len(grid.cells)} cells are in {rows.path}, the same command goes on from there",
            markup=False,
        )
        raise


def print_failures(screen: Console, outcome: Outcome) -> None:
    """Name the cells that failed, a line for each reason."""
    reasons: dict[str, list[Cell]] = {}
    for cell, reason in outcome.failed:
        reasons.setdefault(reason, []).append(cell)
    for reason, cells in reasons.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        screen.print(f"  {cells[0].name}{more}: {reason}", markup=False, style="red")


@contextlib.contextmanager
def _progress(screen: Console) -> Iterator[Progress]:
    """One line: cells done, the cell at work and its accuracy, time left. Without a terminal, a line per tenth."""
    last_tenth = -1
    with text_bar(screen) as draw:

        def report(tick: Tick) -> None:
            nonlocal last_tenth
            text = f"{tick.done}/{tick.total} cells; {_words(tick)}"
            draw(text, tick.done + (tick.share if tick.share < 1 else 0), tick.total)
            tenth = 10 * tick.done // max(1, tick.total)
            if not screen.is_terminal and tick.accuracy is not None and tick.share >= 1 and tenth > last_tenth:
                last_tenth = tenth
                screen.print(text, markup=False)

        yield report


def _words(tick: Tick) -> str:
    parts = []
    if tick.cell is not None:
        parts.append(tick.cell.name + (f" {tick.accuracy:.1%}" if tick.accuracy is not None else ""))
    elif 0 < tick.done < tick.total:
        parts.append("waiting for cells of another process")
    if tick.seconds_left is not None:
        parts.append(f"{duration(tick.seconds_left)} left")
    return " · ".join(parts)
