"""The paper's claims, held against rows: each says what the paper says, what is here, and whether it holds.

A claim is only there where the rows allow it; nothing is decided where a number is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steep.report.figures import energy_points
from steep.report.formats import number, signed
from steep.report.summary import ranked
from steep.report.tables import CLEAN, ECE, MCE, MEAN, Line, Table

_EVERY_SHIFT = ("cifar10-c", "cifar100-c")  # of the others the paper says that TEA is not first everywhere


@dataclass(frozen=True)
class Claim:
    """One claim: in the paper's words shortened, what the rows say, and whether it holds."""

    text: str
    here: str
    holds: bool


def of(table: Table) -> list[Claim]:
    """Check every claim the rows of a table allow.

    >>> of(Table("empty", (), (), ()))
    []
    """
    tea = next((line for line in table.lines if line.method == "tea" and line.name == "tea"), None)
    return [] if tea is None else [*_best(table, tea), *_calibrated(table, tea), *_clean(table, tea), *_energy(table)]


def _best(table: Table, tea: Line) -> Iterator[Claim]:
    names = {MEAN: "TEA has the highest mean accuracy", MCE: "TEA has the lowest mean corruption error"}
    for column, text in names.items():
        others = [line for line in ranked(table, column) if line is not tea and _mean(line, column) is not None]
        own = _mean(tea, column)
        if own is None or not others:
            continue
        best = _mean(others[0], column)
        if best is not None:
            away = own - best
            holds = away < 0 if column == MCE else away > 0
            yield Claim(text, f"{number(own)}, {signed(away)} against {others[0].name} ({number(best)})", holds)
    shifts = [s for s in table.shifts if all(_mean(line, s) is not None for line in table.lines)]
    if shifts and len(table.lines) > 1 and table.spec.get("data") in _EVERY_SHIFT:
        won = [shift for shift in shifts if tea.name in table.best(shift)]
        lost = [shift for shift in shifts if shift not in won]
        there = f"on {len(won)} of {len(shifts)}" + (f"; not on {', '.join(lost)}" if lost else "")
        yield Claim("TEA has the highest accuracy on every shift", there, not lost)


def _calibrated(table: Table, tea: Line) -> Iterator[Claim]:
    own = _mean(tea, ECE)
    for name in ("source", "tent", "shot"):
        other = next((line for line in table.lines if line.name == name), None)
        theirs = _mean(other, ECE) if other is not None else None
        if own is not None and theirs is not None:
            yield Claim(
                f"TEA is better calibrated than {name} (ECE)", f"{number(own)} against {number(theirs)}", own < theirs
            )


def _clean(table: Table, tea: Line) -> Iterator[Claim]:
    source = next((line for line in table.lines if line.method == "source"), None)
    own, base = _mean(tea, CLEAN), _mean(source, CLEAN) if source is not None else None
    if own is not None and base is not None:
        here = f"{number(own)}, {signed(own - base)} against source ({number(base)})"
        yield Claim("TEA keeps clean accuracy to within a point", here, own >= base - 1)


def _energy(table: Table) -> Iterator[Claim]:
    points = [point for point in energy_points(table) if point["method"] == "tea"]
    if points:
        fell = [point for point in points if point["reduction"] > 0]
        here = f"on {len(fell)} of {len(points)}"
        yield Claim("TEA lowers the mean energy of the test images, whatever the shift", here, len(fell) == len(points))


def _mean(line: Line, column: str) -> float | None:
    ours = line.values[column].ours if column in line.values else None
    return None if ours is None or ours.mean != ours.mean else ours.mean
