"""What a claim is, and how differences decide it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steep.bench.rows import Row
from steep.report.noise import Measured, places
from steep.report.tables import Line, Table, plain

HOLDS, FAILS, NOISE, UNKNOWN = VERDICTS = ("holds", "does not hold", "within noise", "not measured")


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

        >>> Claim("TEA leads", "", HOLDS, "cifar10-c", part="first 2,000 images", weights="42097c58a767").on
        'cifar10-c, weights 42097c58a767 (first 2,000 images)'
        """
        where = f"{self.where}, weights {self.weights}" if self.weights else self.where
        return f"{where} ({self.part})" if self.part else where

    @property
    def holds(self) -> bool:
        """Tell whether it holds; within noise it does not."""
        return self.verdict == HOLDS


def decided(*differences: Measured) -> str:
    """Hold a claim that all of these are above zero against them.

    >>> decided(Measured(1.0, 0.1), Measured(1.0, 0.1)), decided(Measured(1.0, 0.1), Measured(0.1, 0.1))
    ('holds', 'within noise')
    >>> decided(Measured(0.1, 0.1), Measured(-1.0, 0.1)), decided()
    ('does not hold', 'not measured')
    """
    sides = {difference.side for difference in differences}
    if not sides:
        return UNKNOWN
    return FAILS if -1 in sides else NOISE if 0 in sides else HOLDS


def missing(text: str, where: str, why: str) -> Claim:
    """Say of a claim that it was not measured, and what that would take."""
    return Claim(text, why, UNKNOWN, where)


def baselines(table: Table) -> list[Line]:
    """Give the lines TEA is compared with in the paper: other methods, in the setting of the comparison."""
    return [line for line in table.lines if not line.method.startswith("tea") and line.name == line.method]


def line_of(table: Table, name: str) -> Line | None:
    """Find the line of a method, as the comparison has it."""
    return next((line for line in table.lines if line.name == name and line.method == name), None)


def viewed(table: Table, *lines: Line) -> list[Row]:
    """Give the rows of lines that a table's view of severities is made of."""
    return [row for line in lines for rows in places(line, table.severities).values() for row in rows]


def origin(rows: Iterable[Row]) -> str:
    """Say of how many images and seeds, and from which files, rows are.

    >>> origin([{"spec": {"method": "tea", "seed": s}, "n": 2000, "run": "a"} for s in (0, 1)])
    'n = 2,000 images a set; 2 seeds; a'
    """
    every = list(rows)
    images = sorted({int(row["n"]) for row in every})
    seeds: dict[str, set[int]] = {}
    for row in every:
        seeds.setdefault(row["spec"].get("label") or row["spec"]["method"], set()).add(row["spec"].get("seed", 0))
    return told(images, sorted({len(own) for own in seeds.values()}), (row.get("run") for row in every))


def told(images: Sequence[int], seeds: Sequence[int], files: Iterable[object]) -> str:
    """Write images, seeds and files as one line."""
    counts = " to ".join(f"{n:,}" for n in dict.fromkeys((images[0], images[-1]))) if images else "unknown"
    many = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1])))) if seeds else "unknown"
    names = ", ".join(dict.fromkeys(plain(file) for file in files if file))
    return f"n = {counts} images a set; {many} seed{'' if many == '1' else 's'}" + (f"; {names}" if names else "")
