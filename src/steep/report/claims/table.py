"""The claims that one table allows."""

from __future__ import annotations

from collections.abc import Iterator

from steep.bench.rows import Row
from steep.report.claims.verdict import FAILS, HOLDS, Claim, baselines, decided, line_of, origin, viewed
from steep.report.figures import energy_points
from steep.report.formats import number
from steep.report.noise import Measured, Point, accuracy, calibrated, places, weighted
from steep.report.tables import CLEAN, MCE, MEAN, Line, Table

_EVERY_SHIFT = ("cifar10-c", "cifar100-c")  # of the others the paper says that TEA is not first everywhere


def of(table: Table) -> list[Claim]:
    """Check every claim the rows of a table allow.

    >>> of(Table("empty", (), (), ()))
    []
    """
    tea = line_of(table, "tea")
    if tea is None:
        return []
    return [*_best(table, tea), *_calibrated(table, tea), *_clean(table, tea), *_energy(table, tea)]


def first(table: Table, column: str, names: frozenset[str] | None = None) -> tuple[Measured, Measured, Line] | None:
    """Compare TEA with the best other method of the comparison: its own number, what it is ahead by, and of whom.

    None where one of these methods (of `names`, where given) has no mean over all shifts.
    """
    tea, others = line_of(table, "tea"), baselines(table)
    if names is not None:
        others = [line for line in others if line.name in names]
    found = {line.name: average(table, line, column) for line in others}
    own = None if tea is None else average(table, tea, column)
    known = [(value, line) for line in others if (value := found[line.name]) is not None]
    if own is None or not known or len(known) < len(others):
        return None
    best, line = min(known, key=lambda pair: pair[0].value if column == MCE else -pair[0].value)
    return own, best - own if column == MCE else own - best, line


def average(table: Table, line: Line, column: str) -> Measured | None:
    """Mean accuracy or mean corruption error over a whole view of severities; each shift has to be there."""
    points = _all_of(table, line)
    if not points:
        return None
    if column != MCE:
        return accuracy(points)
    source = next((line for line in table.lines if line.method == "source"), None)
    wrong: dict[str, float] = {}
    for (shift, _), rows in (_all_of(table, source) if source is not None else {}).items():
        wrong[shift] = wrong.get(shift, 0.0) + 1 - sum(row["accuracy"] for row in rows) / len(rows)
    if any(not wrong.get(shift, 0.0) > 0 for shift in table.shifts):
        return None
    weights = {point: 1 / (len(table.shifts) * wrong[point[0]]) for point in points}
    right = weighted(points, weights)
    return None if right is None else 100 * sum(weights.values()) - right


def _all_of(table: Table, line: Line) -> dict[Point, list[Row]]:
    """Give the rows of a line by shift and severity, or nothing where it lacks one: others would be of more images."""
    points = places(line, table.severities)
    whole = {(shift, severity) for shift in table.shifts for severity in table.severities}
    return points if set(points) == whole else {}


def _best(table: Table, tea: Line) -> Iterator[Claim]:
    names = {MEAN: "TEA has the highest mean accuracy", MCE: "TEA has the lowest mean corruption error"}
    for column, text in names.items():
        if (found := first(table, column)) is not None:
            own, ahead, other = found
            here = f"{number(own.value)}, {-ahead if column == MCE else ahead} against {other.name}"
            yield Claim(text, here, decided(ahead), origin=origin(viewed(table, tea, other)))
    others = baselines(table)
    if not others or table.spec.get("data") not in _EVERY_SHIFT:
        return
    ahead_on: dict[str, Measured] = {}
    for shift in table.shifts:
        parts = [
            accuracy({point: rows for point, rows in _all_of(table, line).items() if point[0] == shift})
            for line in (tea, *others)
        ]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            ahead_on[shift] = known[0] - max(known[1:], key=lambda part: part.value)
    if len(ahead_on) == len(table.shifts) and ahead_on:
        lost = [shift for shift, ahead in ahead_on.items() if ahead.value <= 0]
        close = [shift for shift, ahead in ahead_on.items() if ahead.side == 0]
        here = f"on {len(ahead_on) - len(lost)} of {len(ahead_on)}" + (f"; not on {', '.join(lost)}" if lost else "")
        here += f"; within noise on {', '.join(close)}" if close else ""
        verdict = decided(*ahead_on.values())
        yield Claim(
            "TEA has the highest accuracy on every shift", here, verdict, origin=origin(viewed(table, tea, *others))
        )


def _calibrated(table: Table, tea: Line) -> Iterator[Claim]:
    own = calibrated(_all_of(table, tea))
    for name in ("source", "tent", "shot"):
        other = line_of(table, name)
        theirs = None if other is None else calibrated(_all_of(table, other))
        if own is not None and other is not None and theirs is not None:
            gain = theirs.expected - own.expected
            here = f"{number(own.expected.value)} against {number(theirs.expected.value)}"
            rows = viewed(table, tea, other)
            yield Claim(f"TEA is better calibrated than {name} (ECE)", here, decided(gain), origin=origin(rows))


def _clean(table: Table, tea: Line) -> Iterator[Claim]:
    source = line_of(table, "source")
    own = accuracy(places(tea, (), clean=True)) if CLEAN in table.columns else None
    base = accuracy(places(source, (), clean=True)) if source is not None else None
    if own is not None and base is not None:
        away = own - base
        here = f"{number(own.value)}, {away} against source ({number(base.value)})"
        verdict = decided(Measured(away.value + 1, away.error))
        rows = [row for own_rows in places(tea, (), clean=True).values() for row in own_rows]
        yield Claim("TEA keeps clean accuracy to within a point", here, verdict, origin=origin(rows))


def _energy(table: Table, tea: Line) -> Iterator[Claim]:
    points = [point for point in energy_points(table) if point["method"] == "tea"]
    if points and len(points) == len(table.shifts) * len(table.severities):
        fell = [point for point in points if point["reduction"] > 0]
        verdict = HOLDS if len(fell) == len(points) else FAILS
        here = f"on {len(fell)} of {len(points)}"
        text = "TEA lowers the mean energy of the test images, whatever the shift"
        yield Claim(text, here, verdict, origin=origin(viewed(table, tea)))
