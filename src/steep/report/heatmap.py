"""The heat map: a real table of methods × shifts, with everything the slider and the choice beside it can show.

What is shown first is in the table itself; a script only swaps texts and classes. Colours are in the style sheet, in
steps, so that a test can hold every step to its contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steep.report.formats import spread
from steep.report.markup import Html, data, el, join
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


@dataclass(frozen=True)
class Cell:
    """What a cell shows: its text, its class and, when pointed at, everything about it."""

    text: str
    mark: str
    more: str


def section(table: Table, order: Sequence[str], identity: str) -> Html:
    """Make the heat map of one measured thing; `order` names its lines from top to bottom."""
    views = by_severity(table)
    columns = [*([CLEAN] if CLEAN in table.columns else []), *table.shifts, *([MEAN] if table.shifts else [])]
    modes = [mode for mode in MODES if _has(views, columns, mode)]
    grids = {mode: [_grid(views, view, columns, order, mode) for view in views] for mode in modes}
    start = len(views) - 1 if len(views) == 1 else len(views) - 2  # the most severe alone
    labels = [_label(view) for view in views]
    shown = {
        "views": labels,
        "modes": {m: [[[[c.text, c.mark, c.more] for c in line] for line in grid] for grid in grids[m]] for m in modes},
    }
    head = el("tr", el("th", "method", scope="col"), *(_head(column) for column in columns))
    first = grids[modes[0]][start] if modes else []
    body = [
        el("tr", el("th", name, scope="row"), *(_cell(cell, r == c == 0) for c, cell in enumerate(line)))
        for r, (name, line) in enumerate(zip(order, first, strict=True))
    ]
    missing = sum(cell.text == MISSING for line in first for cell in line)
    gaps = el("p", f"{missing} places are empty (–): their cells have not run.", class_="dim") if missing else None
    caption = el("caption", "Accuracy of every method on every shift", class_="sr")
    grid = el("table", caption, el("thead", head), el("tbody", *body), class_="heat", id=identity, role="grid")
    return join(
        _controls(identity, labels, start, modes),
        el("div", grid, class_="wide"),
        gaps,
        data(f"{identity}-data", shown),
    )


def _controls(identity: str, labels: Sequence[str], start: int, modes: Sequence[str]) -> Html:
    slider = None
    if len(labels) > 1:
        slider = el(
            "span",
            el("label", "severity", for_=f"{identity}-level"),
            el("input", type="range", id=f"{identity}-level", min=0, max=len(labels) - 1, step=1, value=start,
               aria_valuetext=labels[start], data_heat=identity, class_="level"),
            el("output", labels[start], for_=f"{identity}-level"),
            class_="control",
        )  # fmt: skip
    choice = None
    if len(modes) > 1:
        options = [el("option", MODES[mode], value=mode) for mode in modes]
        choice = el(
            "span",
            el("label", "show", for_=f"{identity}-mode"),
            el("select", *options, id=f"{identity}-mode", data_heat=identity, class_="mode"),
            class_="control",
        )
    legend = el("span", "low ", el("span", class_="ramp", aria_hidden="true"), " high", class_="control legend")
    return el("div", slider, choice, legend, class_="controls")


def _grid(
    views: Sequence[Table], view: Table, columns: Sequence[str], order: Sequence[str], mode: str
) -> list[list[Cell]]:
    known = [n for v in views for line in v.lines for c in columns if (n := _number(v, line, c, mode)) is not None]
    known = [n for n in known if n == n]
    lines = {line.name: line for line in view.lines}
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    return [[_made(view, lines[name], column, mode, low, high) for column in columns] for name in order]


def _made(view: Table, line: Line, column: str, mode: str, low: float, high: float) -> Cell:
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


def _has(views: Sequence[Table], columns: Sequence[str], mode: str) -> bool:
    return any(_number(view, line, c, mode) is not None for view in views for line in view.lines for c in columns)


def _label(view: Table) -> str:
    return str(view.severities[0]) if len(view.severities) == 1 else "all"


def _head(column: str) -> Html:
    return el("th", el("span", column.replace("_", " ")), scope="col", title=column)


def _cell(cell: Cell, first: bool) -> Html:
    return el("td", cell.text, class_=cell.mark, tabindex=0 if first else -1, data_more=cell.more)
