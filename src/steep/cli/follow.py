"""A recorded run in the terminal, as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from steep.analysis.stream import estimate, read
from steep.metrics.differences import signed

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN = 48  # batches in a line, and classes in the histogram
_NUMBERS = (
    ("energy_before", "energy, test images before"),
    ("energy_after", "energy, test images after"),
    ("energy_samples", "energy, samples"),
    ("loss", "loss"),
    ("entropy", "entropy"),
    ("disagreement", "answered otherwise than the source model"),
)


def follow_run(
    path: Path,
    console: Console,
    *,
    seconds: float = 0.5,
    until: Callable[[list[dict[str, Any]]], bool] = lambda rows: False,
) -> None:
    """Show a run and what is added to it, until Ctrl-C or until `until` says so."""
    rows = read(path)
    size = path.stat().st_size
    with Live(view(rows, path), console=console, auto_refresh=False) as live:
        while not until(rows):
            time.sleep(seconds)
            now = path.stat().st_size
            if now != size:  # a quiet file is not read again
                rows, size = read(path), now
                live.update(view(rows, path), refresh=True)


def view(rows: Sequence[dict[str, Any]], path: Path) -> RenderableType:
    """Lay out what is known: the last numbers with their recent course, events, and the classes answered."""
    if not rows:
        return Text(f"{path}: no batch yet")
    last, recent = rows[-1], rows[-_SHOWN:]
    table = Table("", "now", f"last {len(recent)} batches", box=None, pad_edge=False)
    for name, title in _NUMBERS:
        values = [row.get(name) for row in recent]
        if any(value is not None for value in values):
            table.add_row(title, "–" if values[-1] is None else f"{values[-1]:.3f}", spark(values))
    gain = estimate(rows)
    if gain is not None:
        table.add_row("estimated gain, points", signed(gain.gain, 1), spark([row.get("gain") for row in recent]))
    for name, title in (("classes", "classes 0, 1, 2, …"), ("source_classes", "the same, source model")):
        counts = [sum(column) for column in zip(*(row[name] for row in recent if row.get(name)), strict=True)]
        if 0 < len(counts) <= _SHOWN:
            table.add_row(title, "", spark(counts, least=0))
    images = sum(row["n"] for row in rows)
    head = f"{last.get('label', '')} on {last.get('device', '?')}: batch {last['batch']:,}, {images:,} images, "
    head += (
        f"{images / last['seconds']:,.0f} images/s, {last['undone']} steps undone" if last["seconds"] else "starting"
    )
    events = [f"batch {row['batch']}: {row['skipped'] or row['note']}" for row in rows if row["skipped"] or row["note"]]
    lines = [Text(head, style="bold"), *([Text(gain.sentence)] if gain else [])]
    return Group(*lines, table, *(Text(event, style="yellow") for event in events[-5:]))


def spark(values: Sequence[float | None], least: float | None = None) -> str:
    """Draw numbers as a line of blocks, with a gap for a missing one.

    >>> spark([0, 1, None, 2])
    '▁▅ █'
    """
    known = [value for value in values if value is not None and value == value and abs(value) != float("inf")]
    if not known:
        return ""
    low = min(known) if least is None else least
    reach = max(known) - low or 1.0
    return "".join(_BLOCKS[min(7, int(7 * (value - low) / reach + 0.5))] if value in known else " " for value in values)
