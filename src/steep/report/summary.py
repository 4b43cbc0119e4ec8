"""What a reader wants to know first, from rows alone: who leads, what was run, on what, when, from which commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from steep.bench.grids import begun
from steep.bench.rows import Row
from steep.report.formats import number, signed
from steep.report.noise import Measured, accuracy, places
from steep.report.tables import CLEAN, MEAN, SMALLER_IS_BETTER, Line, Table, plain, short

_APART = {
    "precision": "{}",
    "weights_sha256": "weights {}",
    "batch_size": "batch {}",
    "delta": "delta {}",
    "channels": "{} channels",
}
"""What may tell two tables of one title apart, and how it is written."""


def main_column(table: Table) -> str:
    """Name the column a table is ranked by: the mean, or clean accuracy where nothing else was run."""
    return MEAN if MEAN in table.columns else CLEAN


def ranked(table: Table, column: str | None = None) -> list[Line]:
    """Sort lines, best first; what is missing or NaN comes last, in the order it was."""
    column = column or main_column(table)
    sign = 1 if column in SMALLER_IS_BETTER else -1

    def place(line: Line) -> tuple[bool, float]:
        ours = line.values[column].ours if column in line.values else None
        known = ours is not None and ours.mean == ours.mean
        return (not known, sign * ours.mean if known and ours is not None else 0.0)

    return sorted(table.lines, key=place)


def titled(table: Table) -> str:
    """Give a table's title, and in it what else tells two tables of one model and data apart."""
    limit, size = table.spec.get("limit"), table.spec.get("size")
    more = [f"{size} pixels" if size else "", f"first {limit:,} images" if limit else ""]
    return ", ".join([table.title, *filter(None, more)])


def titles(tables: Sequence[Table], names: Mapping[str, str] | None = None) -> dict[int, str]:
    """Give each table's title by its id; of those that share one, with what they differ in.

    Where one model was trained more than once, every table under the same protocol says which it is of: by the first
    twelve digits of its weights, or by the name that `names` has for them.
    """
    alike: dict[str, list[Table]] = {}
    trained: dict[tuple[str, ...], set[str]] = {}
    for table in tables:
        alike.setdefault(titled(table), []).append(table)
        trained.setdefault(_trained(table), set()).add(str(table.spec.get("weights_sha256")))
    found = {}
    for title, own in alike.items():
        differ = {name for name in _APART if len({str(table.spec.get(name)) for table in own}) > 1}
        for table in own:
            apart = differ | ({"weights_sha256"} if len(trained[_trained(table)]) > 1 else set())
            weights = str(table.spec.get("weights_sha256"))[:12]
            spec = {**table.spec, "weights_sha256": (names or {}).get(weights, weights)}
            said = [_APART[name].format(spec.get(name)) for name in _APART if name in apart]
            found[id(table)] = ", ".join([title, *said])
    return found


def _trained(table: Table) -> tuple[str, ...]:
    """Name what a model was trained for: tables that share it may be of different trainings."""
    return tuple(str(table.spec.get(name)) for name in ("data", "source", "model", "size", "protocol"))


def headline(table: Table) -> str:
    """Say in a sentence or two who leads, by how much, and what the paper says."""
    column = main_column(table)
    first, *others = ranked(table)
    ours = first.values[column].ours if column in first.values else None
    if ours is None or ours.mean != ours.mean:
        return "No method has run on every shift yet, so there is no average to compare."
    shifts = "1 shift" if len(table.shifts) == 1 else f"{len(table.shifts)} shifts"
    over = f"over {shifts}" if column == MEAN else "on the clean test set"
    verb = "leads with" if others else "has"
    text = f"{first.name} {verb} {number(ours.mean)} % accuracy {over}"
    source = next((line for line in others if line.method == "source"), None)
    if others and others[0] is not source and (ahead := _ahead(table, first, others[0])) is not None:
        text += f", {ahead} against {others[0].name}" + ("" if ahead.side else " (within noise)")
    base = source.values[column].ours if source is not None else None
    if source is not None and base is not None and base.mean == base.mean:
        text += f", {signed(ours.mean - base.mean)} points against the source model ({number(base.mean)} %"
        ahead = _ahead(table, first, source)
        text += "; within noise)" if ahead is not None and not ahead.side else ")"
    value = first.values[column]
    if value.paper is not None and value.difference is not None:
        where = " on whole sets" if table.spec.get("limit") else ""
        text += f". The paper gives {number(value.paper)}{where} (Δ {signed(value.difference)})"
    if shares := begun(table.rows):
        text += f". So far {shares} of this bench have run"
    return text + "."


def _ahead(table: Table, first: Line, other: Line) -> Measured | None:
    """Measure how far one line is ahead of another; of streams, and of a line that lacks a shift, rows do not tell."""
    column = main_column(table)
    if other.values[column].ours is None:
        return None
    own, theirs = (accuracy(places(line, table.severities, clean=column == CLEAN)) for line in (first, other))
    return None if own is None or theirs is None else own - theirs


def facts(rows: Sequence[Row]) -> dict[str, str]:
    """Say what was run, on what, when, and which commit; what no row says is left out."""
    specs = [row["spec"] for row in rows]
    env = [row.get("env") or {} for row in rows]
    seconds = [float(row["seconds"]) for row in rows if isinstance(row.get("seconds"), (int, float))]
    found = {
        "data": _every(spec["data"] for spec in specs),
        "model": _every(spec.get("model") for spec in specs),
        "methods": _every(spec.get("label") or spec["method"] for spec in specs),
        "cells": f"{len(rows):,}",
        "images answered": f"{sum(int(row['n']) for row in rows):,}",
        "when": _when(rows),
        "time in cells": _duration(sum(seconds)) if seconds else "",
        "device": _every(e.get("device") for e in env),
        "commit": _every(short(e["commit"]) for e in env if e.get("commit")),
        "versions": _every(
            f"{name} {version}" for e in env for name, version in sorted((e.get("versions") or {}).items())
        ),
    }
    return {name: value for name, value in found.items() if value}


def facts_of_analyses(rows: Sequence[Row]) -> dict[str, str]:
    """Say the same of flat rows, for a page that has no others."""
    found = {
        "analyses": _every(row["analysis"] for row in rows),
        "data": _every(row.get("data") for row in rows),
        "model": _every(row.get("model") for row in rows),
        "methods": _every(row.get("label") for row in rows if row.get("label") != "real"),
        "when": _when(rows),
        "device": _every(row.get("device") for row in rows),
        "commit": _every(short(row["commit"]) for row in rows if row.get("commit")),
        "versions": _every(f"steep {row['steep']}" for row in rows if row.get("steep")),
    }
    return {name: value for name, value in found.items() if value}


def _every(values: object) -> str:
    kinds = dict.fromkeys(plain(value) for value in values if value)  # type: ignore[attr-defined]
    return ", ".join(kinds)


def _when(rows: Sequence[Row]) -> str:
    times = sorted(plain(row[name])[:16].replace("T", " ") for row in rows for name in ("started", "finished", "when")
                   if row.get(name))  # fmt: skip
    if not times:
        return ""
    first, last = times[0], times[-1]
    if first == last:
        return first
    return f"{first} to {last[11:] if last[:10] == first[:10] and len(last) > 10 else last}"


def _duration(seconds: float) -> str:
    """Write a duration the way people say it.

    >>> _duration(42.0), _duration(4000.0), _duration(200_000.0)
    ('42 s', '1 h 7 min', '55 h 33 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
