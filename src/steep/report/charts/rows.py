"""Flat rows of analyses: read from a file, parted into figures, and honest about what is missing."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from steep.bench.rows import grouped as by_key
from steep.bench.rows import numbers
from steep.errors import InputError
from steep.files import read_bytes

Rows: TypeAlias = list[dict[str, Any]]

VERSION = 1
"""The newest version of a row that is understood here."""

_FIGURE = ("run", "data", "source", "model", "weights", "weights_sha256", "limit", "size")
_ONE_METHOD = ("energy-error", "energy-severity")


def read(path: str | Path) -> Rows:
    """Read the rows that `steep analyze` wrote: `rows.jsonl`, or the folder it lies in."""
    file = Path(path)
    file = file / "rows.jsonl" if file.is_dir() else file
    try:
        lines = read_bytes(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: expected rows of an analysis ({error}). Make some: steep analyze NAME") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            version = row["version"]
            row["analysis"]
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{file}: line {number} is not the row of an analysis ({error!r})") from error
        if row.get("part") == "start":
            raise InputError(
                f"{file}: expected flat rows, got a Recorder's. Run: steep analyze stream {file.name} --out FOLDER"
            )
        if version > VERSION:
            raise InputError(f"{file}: line {number} was written by a newer steep (version {version}). Upgrade steep")
        rows.append(numbers(row))
    return rows


def figures(rows: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """Part rows into those of one figure each: one analysis, in one run, of one model on one data set.

    >>> list(figures([{"analysis": "calibration", "data": "digits-c", "model": "wrn-10-1", "label": "tea"}]))
    ['calibration digits-c wrn-10-1']
    """
    named: dict[str, Rows] = {}
    for (analysis, *key), group in grouped(rows, "analysis", *_FIGURE).items():
        for label, part in grouped(group, *(["label"] if analysis in _ONE_METHOD else [])).items():
            name = " ".join(str(word) for word in (analysis, *key[1:4], *label) if word)
            while name in named:  # the same data and model, other weights or another run
                name += "′"
            named[name] = part
    return named


def grouped(rows: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], Rows]:
    """Group rows by some of their values, in the order they come."""
    return by_key(rows, lambda row: tuple(row.get(name) for name in names))


def finite(row: dict[str, Any], *names: str) -> bool:
    """Tell whether every one of these is a number that can be drawn."""
    return all(isinstance(row.get(name), (int, float)) and math.isfinite(row[name]) for name in names)


def mean(rows: Iterable[dict[str, Any]], name: str) -> float:
    """Mean of one number over rows."""
    return statistics.fmean(float(row[name]) for row in rows)


def averaged(rows: Rows, by: Sequence[str], names: Collection[str], count: str, whole: int | None = None) -> Rows:
    """Mean of numbers over the rows that are alike in `by`; `count` names how many those are.

    Where they are not `whole`, there is none: a mean over a part of the shifts would be another thing.
    """
    return [
        {**dict(zip(by, key, strict=True)), count: len(group), **{name: mean(group, name) for name in names}}
        for key, group in grouped(rows, *by).items()
        if whole in (None, len(group))
    ]
