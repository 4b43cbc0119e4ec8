"""The paper's claims, checked on the rows of one table: what the paper says, what the rows say, whether it holds.

A claim is a text and a check. A check gives the differences that have to be above zero and the words for what is here,
or None where rows are missing: then nothing is decided. All claims are about `paper.SUBJECT`.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from steep.bench.rows import Row
from steep.report.figures import energy_points
from steep.report.noise import Measured, Point, accuracy, bars_of, calibration_error, places, weighted
from steep.report.paper import CLEAN, SUBJECT, methods, printed
from steep.report.tables import MCE, MEAN, Line, Table
from steep.report.words import number

HOLDS, FAILS, NOISE, UNKNOWN = VERDICTS = ("holds", "does not hold", "not significant", "not measured")


@dataclass(frozen=True)
class Claim:
    """One claim: in the paper's words shortened, what the rows say, and whether it holds."""

    text: str
    here: str
    verdict: str  # one of VERDICTS


Finding: TypeAlias = tuple[Sequence[Measured], str]  # what has to be above zero, and what is here in words
Check: TypeAlias = Callable[[Table, Line], Finding | None]


def of(table: Table) -> list[Claim]:
    """Check every claim the rows of a table allow.

    >>> of(Table("empty", (), (), ()))
    []
    """
    subject = line_of(table, SUBJECT)
    findings = [] if subject is None else [(text, check(table, subject)) for text, check in CLAIMS]
    return [Claim(text, finding[1], decide(*finding[0])) for text, finding in findings if finding is not None]


def decide(*differences: Measured) -> str:
    """Decide a claim that all of these are above zero.

    >>> decide(Measured(1.0, 0.1), Measured(1.0, 0.1)), decide(Measured(1.0, 0.1), Measured(0.1, 0.1))
    ('holds', 'not significant')
    >>> decide(Measured(0.1, 0.1), Measured(-1.0, 0.1)), decide()
    ('does not hold', 'not measured')
    """
    sides = {difference.side for difference in differences}
    if not sides:
        return UNKNOWN
    return FAILS if -1 in sides else NOISE if 0 in sides else HOLDS


def line_of(table: Table, name: str) -> Line | None:
    """Find the line of a method, as the paper's comparison has it."""
    return next((line for line in table.lines if line.name == name and line.method == name), None)


def baselines(table: Table) -> list[Line]:
    """Give the lines TEA is compared with in the paper: other methods of it, in the setting of the comparison."""
    return [line for line in table.lines if line.name == line.method and line.name in methods() - {SUBJECT}]


def average(table: Table, line: Line, column: str) -> Measured | None:
    """Mean accuracy or mean corruption error over a whole view of severities; each shift has to be there."""
    points = every_place(table, line)
    if not points:
        return None
    if column != MCE:
        return accuracy(points)
    wrong: dict[str, float] = {}
    for (shift, _), rows in (every_place(table, table.source) if table.source is not None else {}).items():
        wrong[shift] = wrong.get(shift, 0.0) + 1 - statistics.fmean(row["accuracy"] for row in rows)
    if any(not wrong.get(shift, 0.0) > 0 for shift in table.shifts):
        return None
    weights = {point: 1 / (len(table.shifts) * wrong[point[0]]) for point in points}
    right = weighted(points, weights)
    return None if right is None else 100 * sum(weights.values()) - right


def first(table: Table, column: str, names: frozenset[str] | None = None) -> tuple[Measured, Measured, Line] | None:
    """Compare TEA with the best other method of the comparison: its number, what it is ahead by, and of whom.

    None where one of these methods (of `names`, where there are some) has no mean over all shifts.
    """
    subject = line_of(table, SUBJECT)
    others = [line for line in baselines(table) if names is None or line.name in names]
    ours = None if subject is None else average(table, subject, column)
    rivals = [(value, line) for line in others if (value := average(table, line, column)) is not None]
    if ours is None or not rivals or len(rivals) < len(others):
        return None
    best, line = min(rivals, key=lambda pair: pair[0].value if column == MCE else -pair[0].value)
    return ours, best - ours if column == MCE else ours - best, line


def every_place(table: Table, line: Line) -> dict[Point, list[Row]]:
    """Give the rows of a line by shift and severity, or nothing where it lacks one: others would be of more images."""
    points = places(line, table.severities)
    whole = {(shift, severity) for shift in table.shifts for severity in table.severities}
    return points if set(points) == whole else {}


def _first(table: Table, subject: Line, *, column: str) -> Finding | None:
    comparison = first(table, column)
    if comparison is None:
        return None
    ours, ahead, other = comparison
    return [ahead], f"{number(ours.value)}; against {other.name}: {-ahead if column == MCE else ahead}"


def _first_on_every_shift(table: Table, subject: Line) -> Finding | None:
    others = baselines(table)
    if not others or table.spec.get("data") not in printed()["claims"]["first_on_every_shift"]:
        return None
    ahead: dict[str, Measured] = {}
    for shift in table.shifts:
        means = [
            accuracy({point: rows for point, rows in every_place(table, line).items() if point[0] == shift})
            for line in (subject, *others)
        ]
        measured = [mean for mean in means if mean is not None]
        if len(measured) < len(means):
            return None
        ahead[shift] = measured[0] - max(measured[1:], key=lambda mean: mean.value)
    if not ahead:
        return None
    behind = [shift for shift, lead in ahead.items() if lead.value <= 0]
    close = [shift for shift, lead in ahead.items() if lead.side == 0]
    here = f"on {len(ahead) - len(behind)} of {len(ahead)}" + (f"; not on {_listed(behind, ahead)}" if behind else "")
    here += f"; not significant on {_listed(close, ahead)}" if close else ""
    return list(ahead.values()), here


def _listed(some: Sequence[str], every: Collection[str]) -> str:
    """Name some shifts of all there are.

    >>> _listed(["motion_blur"], ["motion_blur", "fog"]), _listed(["fog"], ["fog"])
    ('motion blur', 'any')
    """
    return ", ".join(some).replace("_", " ") if len(some) < len(every) else "any"


def _better_calibrated(table: Table, subject: Line, *, than: str) -> Finding | None:
    other = line_of(table, than)
    both = [bars_of(every_place(table, line)) for line in (subject, other) if line is not None]
    errors = [calibration_error(bars, seeds) for bars, seeds in both if bars is not None]
    if len(errors) < 2:
        return None
    ours, theirs = errors
    return [theirs - ours], f"{number(ours.value)} against {number(theirs.value)}"


def _keeps_clean(table: Table, subject: Line) -> Finding | None:
    points = places(subject, (), clean=True) if CLEAN in table.columns else {}
    ours = accuracy(points)
    base = None if table.source is None else accuracy(places(table.source, (), clean=True))
    if ours is None or base is None:
        return None
    away = ours - base
    here = f"{number(ours.value)}; against source ({number(base.value)}): {away}"
    return [Measured(away.value + 1, away.error)], here


def _lowers_energy(table: Table, subject: Line) -> Finding | None:
    points = [point for point in energy_points(table) if point["method"] == subject.name]
    if not points or len(points) < len(table.shifts) * len(table.severities):
        return None
    fell = sum(point["reduction"] > 0 for point in points)
    ahead = [Measured(point["reduction"], 0.0) if point["reduction"] else Measured(-1.0, 0.0) for point in points]
    return ahead, f"on {fell} of {len(points)}"


CLAIMS: tuple[tuple[str, Check], ...] = (
    ("TEA has the highest mean accuracy", functools.partial(_first, column=MEAN)),
    ("TEA has the lowest mean corruption error", functools.partial(_first, column=MCE)),
    ("TEA has the highest accuracy on every shift", _first_on_every_shift),
    *(
        (f"TEA is better calibrated than {name} (ECE)", functools.partial(_better_calibrated, than=name))
        for name in printed()["claims"]["calibration_compared"]
        if name != SUBJECT
    ),
    ("TEA keeps clean accuracy to within a point", _keeps_clean),
    ("TEA lowers the mean energy of the test images, whatever the shift", _lowers_energy),
)
"""The claims that one table can decide."""
