"""Which page and which part of it a table belongs to.

Rows are sorted before tables are made of them. The methods as TEA's comparison has them make the rankings. The same
methods in the setting `tuned`, and lines that go by another name than their method's (before or after the update,
another buffer, ...), stand beside their own method, so that no ranking has the same method twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steep.bench.rows import Row
from steep.methods import SOURCE
from steep.report.paper import SUBJECT, as_in_paper, benchmark, blocks
from steep.report.tables import Line, Table, build
from steep.report.words import declared, model_title
from tools.results_page.trainings import UNRECORDED

STREAMS, OTHERS, VARIANTS, TUNED = "Other streams", "More runs", "Variants of one method", "Tuned baselines"
OTHER_PAGE = "other"

PAGES = tuple(dict.fromkeys(block["data"] for block in blocks()))
"""The data sets of the paper; each has a page."""

_MODELS = tuple(dict.fromkeys(block["model"] for block in blocks()))
_APART = {
    "precision": "{}",
    "weights_sha256": "source model {}",
    "batch_size": "adapted in batches of {}",
    "delta": "delta {}",
    "channels": "{} channels",
}
"""What may tell two tables of one title apart, and how it is written."""


@dataclass(frozen=True)
class Part:
    """A table and its place: the page, the chapter in it, and whether it is folded away there."""

    table: Table
    page: str
    chapter: str
    folded: bool = False


def sort(rows: Sequence[Row], trained: Mapping[str, str]) -> list[Part]:
    """Sort rows into parts of pages; `trained` names source models by their digest's beginning."""
    compared = [row for row in rows if row["spec"].get("setting", "paper") == "paper"]
    variants = [table for table in map(_beside, _tables(compared)) if table.lines]
    lone = {row["key"] for table in variants for line in table.lines if not has_own_name(line) for row in line.rows}
    rankings = _tables([row for row in compared if row["key"] not in lone])
    tuned = [t for t in map(_both_settings, _tables([row for row in rows if row["key"] not in lone])) if t.lines]
    chapters = [*map(_chapter, rankings), *([VARIANTS] * len(variants)), *([TUNED] * len(tuned))]
    tables = with_distinct_titles([*rankings, *variants, *tuned], trained)
    parts = [Part(table, _page(table), chapter) for table, chapter in zip(tables, chapters, strict=True)]
    ordered = sorted(parts, key=lambda part: _order(part))
    return [replace(part, folded=_folded(part, ordered)) for part in ordered]


def with_distinct_titles(tables: Sequence[Table], trained: Mapping[str, str]) -> list[Table]:
    """Give each table a title of its own: those that share one say what they differ in.

    Where one model was trained more than once, every table under the same protocol says which training it is of.
    """
    alike: dict[str, list[Table]] = {}
    digests: dict[tuple[str, ...], set[str]] = {}
    for table in tables:
        alike.setdefault(table.title, []).append(table)
        digests.setdefault(_trained_for(table), set()).add(str(table.spec.get("weights_sha256")))
    renamed = []
    for table in tables:
        peers = alike[table.title]
        differ = {name for name in _APART if len({str(peer.spec.get(name)) for peer in peers}) > 1}
        differ |= {"weights_sha256"} if len(digests[_trained_for(table)]) > 1 else set()
        weights = str(table.spec.get("weights_sha256"))[:12]
        spec = {**table.spec, "weights_sha256": trained.get(weights, UNRECORDED)}
        words = [_APART[name].format(spec.get(name)) for name in _APART if name in differ]
        renamed.append(replace(table, title=" · ".join([table.title, *words])))
    return renamed


def has_own_name(line: Line) -> bool:
    """Tell whether a line goes by the name of its method."""
    return line.spec.get("label") in (None, "", line.method)


def has_mean(table: Table, line: Line) -> bool:
    """Tell whether a line has what its table is ranked by."""
    return line.values[table.main_column].ours is not None


def _trained_for(table: Table) -> tuple[str, ...]:
    return tuple(str(table.spec.get(name)) for name in ("data", "source", "model", "size", "protocol"))


def _page(table: Table) -> str:
    return str(table.spec["data"]) if table.spec["data"] in PAGES else OTHER_PAGE


def _chapter(table: Table) -> str:
    spec = table.spec
    if spec.get("protocol") != "reset" or spec.get("batch_size") == 1:
        return STREAMS
    if _is_of_settings(table):
        return VARIANTS
    known = declared(spec["data"])
    domains = known.domains if known is not None else ()
    if table.shifts and not set(table.shifts) & {*benchmark(), *domains}:
        return OTHERS
    fits = (
        spec["data"] in PAGES and spec.get("model") in _MODELS and (domains or as_in_paper({**spec, "method": SOURCE}))
    )
    return model_title(spec["model"]) if fits else OTHERS


def _is_of_settings(table: Table) -> bool:
    """Tell whether settings of one method stand side by side without the method itself: tried for what they explain."""
    tried = Counter(line.method for line in table.lines if not has_own_name(line))
    return any(times > 1 for method, times in tried.items() if method not in {line.name for line in table.lines})


def _folded(part: Part, parts: Sequence[Part]) -> bool:
    """Tell whether another table of the chapter says more: more shifts, whole sets, the paper's figures beside."""
    peers = [other.table for other in parts if (other.page, other.chapter) == (part.page, part.chapter)]
    if part.chapter in (STREAMS, VARIANTS, TUNED) or len(peers) == 1:
        return False
    if part.chapter == OTHERS:
        return True
    table = part.table
    few = len(table.shifts) < max(len(peer.shifts) for peer in peers)
    whole = [_same(peer) for peer in peers if peer.spec.get("limit") is None]
    partial = table.spec.get("limit") is not None and _same(table) in whole
    unnamed = not any(map(has_own_name, table.lines))  # variants, with nothing to be compared with
    printed = [any(peer.has_paper(column) for column in peer.columns) for peer in peers]
    beside_paper = any(table.has_paper(column) for column in table.columns)
    return few or partial or unnamed or (any(printed) and not beside_paper)


def _same(table: Table) -> tuple[object, ...]:
    """Say what a table is of, however many images of it were taken."""
    return (*(table.spec.get(name) for name in ("data", "model", "source", "size", "weights_sha256")), table.severities)


def _order(part: Part) -> tuple[Any, ...]:
    """The paper's sets and models first, whole sets before parts of them, runs of many methods before those of few."""
    spec = part.table.spec
    page = PAGES.index(part.page) if part.page in PAGES else len(PAGES)
    chapters = [*map(model_title, _MODELS), STREAMS, OTHERS, VARIANTS, TUNED]
    whole = (spec.get("size") or 0, spec.get("limit") is not None, str(spec["protocol"]), -len(part.table.lines))
    return (page, chapters.index(part.chapter), *whole)


def _tables(rows: Sequence[Row]) -> list[Table]:
    return build(rows) if rows else []


def _both_settings(table: Table) -> Table:
    """Reduce a table to what has both settings, and TEA to compare with."""
    tuned = {line.method for line in table.lines if line.setting == "tuned" and has_mean(table, line)}
    lines = [line for line in table.lines if line.method in tuned or line.name == SUBJECT] if tuned else []
    return replace(table, lines=tuple(lines))


def _beside(table: Table) -> Table:
    """Reduce a table to lines of another name and those they are variants of; a name alone makes no variant."""
    bases = {line.method for line in table.lines if has_own_name(line)}
    lone = [line for line in table.lines if not has_own_name(line) and line.method in bases]
    if not any(has_mean(table, line) for line in lone):  # they are of other severities
        return replace(table, lines=())
    shown = {line.method for line in lone} | {SOURCE}
    lines = [line for line in table.lines if line in lone or (has_own_name(line) and line.method in shown)]
    return replace(table, lines=tuple(lines))
