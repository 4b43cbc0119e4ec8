"""A claim with its place: on what it was checked, and from which images, seeds and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steep.bench.rows import Row
from steep.report import claims
from steep.report.claims import UNKNOWN
from steep.report.noise import places
from steep.report.tables import Line, Table
from steep.report.words import counted, plain


@dataclass(frozen=True)
class Claim(claims.Claim):
    """A claim, and what it was checked on."""

    where: str = ""  # data and model
    origin: str = ""  # images, seeds and files
    part: str = ""  # which images of a set, where not all
    weights: str = ""  # of which training, where there were several

    @property
    def on(self) -> str:
        """Say on what it is, to the part of the sets and the training.

        >>> Claim("TEA leads", "", "holds", "CIFAR-10-C", part="first 2,000 images", weights="42097c58a767").on
        'CIFAR-10-C · source model 42097c58a767 (first 2,000 images)'
        """
        where = f"{self.where} · source model {self.weights}" if self.weights else self.where
        return f"{where} ({self.part})" if self.part else where


def missing(text: str, where: str, why: str) -> Claim:
    """Say of a claim that it was not measured, and what that would take."""
    return Claim(text, why, UNKNOWN, where)


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
