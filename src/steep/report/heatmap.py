"""The heat map: a table of methods × shifts, with everything the slider and the choice beside it can show.

What is shown first is in the page's table itself; a script only swaps texts and classes. Colours are in the style
sheet, in steps, so that a test can hold every step to its contrast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from steep.report.formats import spread
from steep.report.paper import CLEAN
from steep.report.tables import MEAN, Line, Table, by_severity
from steep.report.words import MISSING, number, signed

STEPS = 9  # of the colours of accuracies
SIDE = 4  # of the colours on either side of nothing gained
MODES = {
    "accuracy": "accuracy (%)",
    "gain": "gain over the source model (points)",
    "paper": "difference to the paper (points)",
}


class Cell(NamedTuple):
    """What a cell shows: its text, its class and, when pointed at, everything about it."""

    text: str
    mark: str
    more: str


Grid: TypeAlias = list[list[Cell]]  # by line and column


@dataclass(frozen=True)
class HeatMap:
    """What a heat map can show: for each mode and view of severities a grid of cells."""

    columns: Sequence[str]
    order: Sequence[str]  # the names of its lines
    labels: Sequence[str]  # of the views
    modes: Mapping[str, Sequence[Grid]]  # of each view
    start: int  # the view that is shown first: the most severe alone
    first: Grid  # and its cells


def heat_map(table: Table) -> HeatMap:
    """Make the heat map of one measured thing, the best line on top."""
    views, order = by_severity(table), [line.name for line in table.ranked()]
    columns = [*([CLEAN] if CLEAN in table.columns else []), *table.shifts, *([MEAN] if table.shifts else [])]
    modes: dict[str, list[Grid]] = {}
    for mode in MODES:
        every = [_number(view, line, c, mode) for view in views for line in view.lines for c in columns]
        known = [value for value in every if value is not None]
        if known:
            numbers = [value for value in known if value == value] or [0.0]
            low, high = min(numbers), max(numbers)
            lines = [{line.name: line for line in view.lines} for view in views]
            modes[mode] = [
                [[_cell(view, named[name], column, mode, low, high) for column in columns] for name in order]
                for view, named in zip(views, lines, strict=True)
            ]
    labels = [str(view.severities[0]) if len(view.severities) == 1 else "all" for view in views]
    start = max(0, len(views) - 2)
    return HeatMap(columns, order, labels, modes, start, next(iter(modes.values()))[start] if modes else [])


def _cell(view: Table, line: Line, column: str, mode: str, low: float, high: float) -> Cell:
    value = _number(view, line, column, mode)
    entry = line.values[column]
    ours = entry.ours
    if value is None or ours is None:
        return Cell(MISSING, "gap", "not run" if ours is None else "nothing to compare with")
    if value != value:
        return Cell("NaN", "nan", "NaN: the answers were not finite")
    more = f"{spread(ours)} %" + (f" over {ours.n} seeds" if ours.sd is not None else "")
    if mode == "gain":
        more += f", {signed(value)} points against the source model"
    if entry.paper is not None and entry.difference is not None:
        more += f"; paper {number(entry.paper)}, Δ {signed(entry.difference)}"
    if mode == "accuracy":
        # Squared: methods differ most where accuracy is high, and there the steps are finest.
        share = ((value - low) / (high - low)) ** 2 if high > low else 1.0
        return Cell(number(value, 1), f"s{min(STEPS - 1, int(share * STEPS))}", more)
    widest = max(abs(low), abs(high)) or 1.0
    step = round(abs(value) / widest * SIDE)
    return Cell(number(value, 1), "z" if not step else f"{'p' if value > 0 else 'n'}{step}", more)


def _number(view: Table, line: Line, column: str, mode: str) -> float | None:
    value = line.values[column]
    if value.ours is None or mode == "accuracy":
        return None if value.ours is None else value.ours.mean
    if mode == "paper":
        return value.difference
    base = None if view.source is None else view.source.values[column].ours
    return None if base is None else value.ours.mean - base.mean
