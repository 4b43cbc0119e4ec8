"""What a reader wants to know first, from rows alone: who leads, what was run, on what, when, from which commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from steep.bench.rows import Row, begun
from steep.report.noise import Measured, accuracy, places
from steep.report.paper import CLEAN
from steep.report.tables import MEAN, Line, Table
from steep.report.words import duration, number, plain, short, signed


def headline(table: Table) -> str:
    """Say in a sentence or two who leads, by how much and how sure, and what the paper says."""
    column = table.main_column
    first, *others = table.ranked()
    mean = first.mean(column)
    if mean is None:
        return "No method has run on every shift yet, so there is no average to compare."
    shifts = "1 shift" if len(table.shifts) == 1 else f"{len(table.shifts)} shifts"
    over = f"over {shifts}" if column == MEAN else "on the clean test set"
    text = f"{first.name} {'leads with' if others else 'has'} {number(mean)} % accuracy {over}"
    source = table.source
    if others and others[0] is not source:
        text += _against(table, first, others[0], others[0].name)
    base = None if source is None or source is first else source.mean(column)
    if source is not None and base is not None:
        text += _against(table, first, source, f"the source model ({number(base)} %)")
    value = first.values[column]
    if value.paper is not None and value.difference is not None:
        where = " on whole sets" if table.spec.get("limit") else ""
        text += f". The paper gives {number(value.paper)}{where} (Δ {signed(value.difference)})"
    if shares := begun(table.rows):
        text += f". So far {shares} of this bench have run"
    return text + "."


def _against(table: Table, first: Line, other: Line, name: str) -> str:
    words = ahead(table, first, other)
    return f"; against {name}: {words}" if words else ""


def ahead(table: Table, first: Line, other: Line) -> str:
    """Write how far one line is ahead of another, and how sure that is where rows say it; nothing without means."""
    ours, theirs = (line.mean(table.main_column) for line in (first, other))
    if ours is None or theirs is None:
        return ""
    away = lead(table, first, other)
    if away is not None:
        return str(away)
    points = signed(ours - theirs, 1)
    return "tie" if points == "0.0" else f"{points} points"


def lead(table: Table, first: Line, other: Line) -> Measured | None:
    """Measure how far one line is ahead of another; None of streams and of a line that lacks a shift."""
    column = table.main_column
    if other.mean(column) is None:
        return None
    ours, theirs = (accuracy(places(line, table.severities, clean=column == CLEAN)) for line in (first, other))
    return None if ours is None or theirs is None else ours - theirs


def facts(rows: Sequence[Row], analyses: Sequence[Row] = ()) -> dict[str, str]:
    """Say what was run, on what, when, and which commit, of flat rows where there are no others; no empty word."""
    flat = [_flat(row) for row in rows] or analyses
    versions = [row.get("versions") or {"steep": row.get("steep")} for row in flat]
    seconds = [float(row["seconds"]) for row in rows if isinstance(row.get("seconds"), (int, float))]
    known = {
        "analyses": "" if rows else _every(row["analysis"] for row in analyses),
        "data": _every(row.get("data") for row in flat),
        "model": _every(row.get("model") for row in flat),
        "methods": _every(row.get("label") for row in flat if row.get("label") != "real"),
        "cells": f"{len(rows):,}" if rows else "",
        "images answered": f"{sum(int(row['n']) for row in rows):,}" if rows else "",
        "when": _when(rows or analyses),
        "time in cells": duration(sum(seconds)) if seconds else "",
        "device": _every(row.get("device") for row in flat),
        "commit": _every(short(row["commit"]) for row in flat if row.get("commit")),
        "versions": _every(f"{name} {v}" for every in versions for name, v in sorted(every.items()) if v),
    }
    return {name: value for name, value in known.items() if value}


def _flat(row: Row) -> Row:
    """Give a bench's row as an analysis would."""
    spec, env = row["spec"], row.get("env") or {}
    about = {"data": spec["data"], "model": spec.get("model"), "label": spec.get("label") or spec["method"]}
    return {**about, "device": env.get("device"), "commit": env.get("commit"), "versions": env.get("versions")}


def _every(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(plain(value) for value in values if value))


def _when(rows: Sequence[Row]) -> str:
    times = sorted(plain(row[name])[:16].replace("T", " ") for row in rows for name in ("started", "finished", "when")
                   if row.get(name))  # fmt: skip
    if not times:
        return ""
    first, last = times[0], times[-1]
    if first == last:
        return first
    return f"{first} to {last[11:] if last[:10] == first[:10] and len(last) > 10 else last}"
