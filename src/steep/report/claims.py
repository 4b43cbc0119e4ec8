"""The paper's claims, checked on the rows of one table: what the paper says, what the rows say, whether it holds.

A claim is a text and a check. A check gives the differences that have to be above zero, the words for what is here and
the rows it used, or None where rows are missing: then nothing is decided. All claims are about `paper.SUBJECT`.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from steep import recipes
from steep.bench.rows import Row
from steep.report.figures import energy_points
from steep.report.noise import Measured, Point, accuracy, calibrated, places, weighted
from steep.report.paper import CLEAN, SUBJECT, methods
from steep.report.tables import MCE, MEAN, Line, Table
from steep.report.words import counted, number, plain

HOLDS, FAILS, NOISE, UNKNOWN = VERDICTS = ("holds", "does not hold", "not significant", "not measured")


@dataclass(frozen=True)
class Claim:
    """One claim: in the paper's words shortened, what the rows say, and whether it holds."""

    text: str
    here: str
    verdict: str  # one of VERDICTS
    where: str = ""  # on what data and model
    origin: str = ""  # images, seeds and files
    part: str = ""  # which images of a set, where not all
    weights: str = ""  # of which training, where there were several

    @property
    def on(self) -> str:
        """Say on what it is, to the part of the sets and the training.

        >>> Claim("TEA leads", "", HOLDS, "CIFAR-10-C", part="first 2,000 images", weights="42097c58a767").on
        'CIFAR-10-C · source model 42097c58a767 (first 2,000 images)'
        """
        where = f"{self.where} · source model {self.weights}" if self.weights else self.where
        return f"{where} ({self.part})" if self.part else where


class Finding(NamedTuple):
    """What a check finds in rows."""

    ahead: Sequence[Measured]  # each has to be above zero
    here: str
    rows: Sequence[Row]


Check: TypeAlias = Callable[[Table, Line], Finding | None]


def of(table: Table) -> list[Claim]:
    """Check every claim the rows of a table allow.

    >>> of(Table("empty", (), (), ()))
    []
    """
    subject = line_of(table, SUBJECT)
    findings = [] if subject is None else [(text, check(table, subject)) for text, check in CLAIMS]
    return [
        Claim(text, finding.here, decide(*finding.ahead), origin=origin(finding.rows))
        for text, finding in findings
        if finding is not None
    ]


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


def viewed(table: Table, *lines: Line) -> list[Row]:
    """Give the rows of lines that a table's view of severities is made of."""
    return [row for line in lines for rows in places(line, table.severities).values() for row in rows]


def origin(rows: Iterable[Row]) -> str:
    """Say of how many images and seeds, and from which files, rows are.

    >>> origin([{"spec": {"method": "tea", "seed": s}, "n": 2000, "run": "a"} for s in (0, 1)])
    'n = 2,000 images a set; 2 seeds; a'
    """
    every = list(rows)
    seeds: dict[str, set[int]] = {}
    for row in every:
        seeds.setdefault(row["spec"].get("label") or row["spec"]["method"], set()).add(row["spec"].get("seed", 0))
    counts = sorted(len(numbers) for numbers in seeds.values())
    return provenance(sorted({int(row["n"]) for row in every}), counts, (row.get("run") for row in every))


def provenance(images: Sequence[int], seeds: Sequence[int], files: Iterable[object]) -> str:
    """Write images, seeds and files as one line."""
    many = counted(seeds)
    names = ", ".join(dict.fromkeys(plain(file) for file in files if file))
    text = f"n = {counted(images)} images a set; {many} seed{'' if many == '1' else 's'}"
    return text + (f"; {names}" if names else "")


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
    here = f"{number(ours.value)}; against {other.name}: {-ahead if column == MCE else ahead}"
    return Finding([ahead], here, viewed(table, subject, other))


def _first_on_every_shift(table: Table, subject: Line) -> Finding | None:
    others = baselines(table)
    if not others or table.spec.get("data") not in recipes.paper()["claims"]["first_on_every_shift"]:
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
    here = f"on {len(ahead) - len(behind)} of {len(ahead)}" + (f"; not on {', '.join(behind)}" if behind else "")
    here += f"; not significant on {', '.join(close)}" if close else ""
    return Finding(list(ahead.values()), here, viewed(table, subject, *others))


def _better_calibrated(table: Table, subject: Line, *, than: str) -> Finding | None:
    other = line_of(table, than)
    ours, theirs = (None if line is None else calibrated(every_place(table, line)) for line in (subject, other))
    if ours is None or theirs is None or other is None:
        return None
    here = f"{number(ours.expected.value)} against {number(theirs.expected.value)}"
    return Finding([theirs.expected - ours.expected], here, viewed(table, subject, other))


def _keeps_clean(table: Table, subject: Line) -> Finding | None:
    points = places(subject, (), clean=True) if CLEAN in table.columns else {}
    ours = accuracy(points)
    base = None if table.source is None else accuracy(places(table.source, (), clean=True))
    if ours is None or base is None:
        return None
    away = ours - base
    here = f"{number(ours.value)}; against source ({number(base.value)}): {away}"
    return Finding([Measured(away.value + 1, away.error)], here, list(itertools.chain(*points.values())))


def _lowers_energy(table: Table, subject: Line) -> Finding | None:
    points = [point for point in energy_points(table) if point["method"] == subject.name]
    if not points or len(points) < len(table.shifts) * len(table.severities):
        return None
    fell = sum(point["reduction"] > 0 for point in points)
    ahead = [Measured(point["reduction"], 0.0) if point["reduction"] else Measured(-1.0, 0.0) for point in points]
    return Finding(ahead, f"on {fell} of {len(points)}", viewed(table, subject))


CLAIMS: tuple[tuple[str, Check], ...] = (
    ("TEA has the highest mean accuracy", functools.partial(_first, column=MEAN)),
    ("TEA has the lowest mean corruption error", functools.partial(_first, column=MCE)),
    ("TEA has the highest accuracy on every shift", _first_on_every_shift),
    *(
        (f"TEA is better calibrated than {name} (ECE)", functools.partial(_better_calibrated, than=name))
        for name in recipes.paper()["claims"]["calibration_compared"]
        if name != SUBJECT
    ),
    ("TEA keeps clean accuracy to within a point", _keeps_clean),
    ("TEA lowers the mean energy of the test images, whatever the shift", _lowers_energy),
)
"""The claims that one table can decide."""
