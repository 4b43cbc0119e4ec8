"""The order of a results page: the paper's tables first, then its analyses, then what goes beyond it.

Rows are parted before tables are made of them. The methods as TEA's comparison has them make the rankings; the same
methods in the setting `tuned`, and lines that go by another name than their method's (before or after the update,
another buffer, ...), stand beside their own method, so that no ranking has the same method twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steep.bench.rows import Row
from steep.report.paper import as_in_paper, benchmark
from steep.report.summary import main_column
from steep.report.tables import Line, Table, build

CIFAR10, CIFAR100, GROUP_NORM, PACS, TINY, STREAMS, SHIPPED, OTHERS = (
    "CIFAR-10-C",
    "CIFAR-100-C",
    "ResNet-50 with GroupNorm",
    "PACS",
    "Tiny-ImageNet-C",
    "Other streams",
    "The model inside the package: WRN-40-2",
    "More runs",
)
PAPER = (CIFAR10, CIFAR100, GROUP_NORM, PACS, TINY)
BEYOND = (STREAMS, SHIPPED, OTHERS)
_BY_DATA = {"cifar10-c": CIFAR10, "cifar100-c": CIFAR100, "tiny-imagenet-c": TINY}


@dataclass(frozen=True)
class Chapters:
    """Tables by chapter, and those that compare a method with itself."""

    rankings: Mapping[str, tuple[Table, ...]]
    tuned: tuple[Table, ...] = ()
    variants: tuple[Table, ...] = field(default=())

    @property
    def tables(self) -> list[Table]:
        """Every ranking, in order."""
        return [table for name in (*PAPER, *BEYOND) for table in self.rankings.get(name, ())]


def part(rows: Sequence[Row]) -> Chapters:
    """Part rows into chapters."""
    beside = [_beside(table) for table in _tables([row for row in rows if _compared(row)])]
    variants = {row["key"] for table in beside for line in table.lines if not own_name(line) for row in line.rows}
    usual = [row for row in rows if row["key"] not in variants]
    rankings: dict[str, list[Table]] = {}
    for table in _tables([row for row in usual if _compared(row)]):
        rankings.setdefault(chapter(table), []).append(table)
    ordered = {name: tuple(sorted(own, key=_order)) for name, own in rankings.items()}
    tuned = [_both_settings(table) for table in _tables(usual)]
    return Chapters(ordered, tuple(t for t in tuned if t.lines), tuple(t for t in beside if t.lines))


def chapter(table: Table) -> str:
    """Name the chapter a table belongs to."""
    spec = table.spec
    if spec.get("protocol") != "reset" or spec.get("batch_size") == 1:
        return STREAMS
    if spec.get("data") == "pacs":
        return PACS
    if spec.get("data") not in _BY_DATA or (table.shifts and not set(table.shifts) & set(benchmark())):
        return OTHERS
    if spec.get("model") in ("resnet-50-gn", "wrn-40-2"):
        return GROUP_NORM if spec["model"] == "resnet-50-gn" else SHIPPED
    fits = spec.get("model") == "wrn-28-10" and as_in_paper({**spec, "method": "source"})
    return _BY_DATA[spec["data"]] if fits else OTHERS


def _tables(rows: Sequence[Row]) -> list[Table]:
    return build(rows) if rows else []


def _compared(row: Row) -> bool:
    return bool(row["spec"].get("setting", "paper") == "paper")


def own_name(line: Line) -> bool:
    """Whether a line goes by the name of its method."""
    return line.spec.get("label") in (None, "", line.method)


def _order(table: Table) -> tuple[Any, ...]:
    """Data in the paper's order, whole sets before parts of them, runs of many methods before those of few."""
    data = [*_BY_DATA, "pacs"]
    place = data.index(table.spec["data"]) if table.spec.get("data") in data else len(data)
    size, limited = table.spec.get("size") or 0, table.spec.get("limit") is not None
    return (place, size, limited, str(table.spec["protocol"]), -len(table.lines))


def has_mean(table: Table, line: Line) -> bool:
    """Whether a line has what its table is ranked by."""
    return line.values[main_column(table)].ours is not None


def _both_settings(table: Table) -> Table:
    """Keep what has both settings, and TEA to compare with."""
    tuned = {line.method for line in table.lines if line.setting == "tuned" and has_mean(table, line)}
    kept = [line for line in table.lines if line.method in tuned or line.name == "tea"] if tuned else []
    return replace(table, lines=tuple(kept))


def _beside(table: Table) -> Table:
    """Keep the lines of another name, and those they are variants of; a name alone makes no variant."""
    bases = {line.method for line in table.lines if own_name(line)}
    lone = [line for line in table.lines if not own_name(line) and line.method in bases]
    if not any(has_mean(table, line) for line in lone):  # they are of other severities
        return replace(table, lines=())
    shown = {line.method for line in lone} | {"source"}
    kept = [line for line in table.lines if line in lone or (own_name(line) and line.method in shown)]
    return replace(table, lines=tuple(kept))
