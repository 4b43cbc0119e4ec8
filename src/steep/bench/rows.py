"""Rows as they lie in a store: one JSON object a line, strict JSON, each complete in itself.

`schema`, `key`, `spec` · accuracy, error, loss, nll, ece, mce, brier, energy_before, energy_after, n ·
`reliability` (10 bins, for diagrams), `calibration` (15 bins, of which ECE is made), `per_class`, `right` (of a set
that every method sees in one order, a bit for each image: `answers`), `segments`, `data` (origin and digest), `notes` ·
seconds, images_per_s, peak_memory, started, finished, `env` (versions, commit, device).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from steep.bench import grids
from steep.bench.grids import GRID
from steep.bench.schema import ROW, misfit
from steep.errors import SteepError

Row: TypeAlias = dict[str, Any]

SCHEMA = 1
"""Version of a row; raised when an older reader could no longer understand it."""

VOLATILE = ("seconds", "images_per_s", "peak_memory", "started", "finished", "env", GRID)
"""What differs when the same cell runs again."""

_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class StoreError(SteepError, RuntimeError):
    """A store that cannot be read or written as it is."""


def encode(row: Mapping[str, Any]) -> bytes:
    """Write a row as one line. JSON has no NaN, so non-finite numbers become the strings "NaN" and "±Infinity".

    >>> encode({"ece": float("nan"), "n": 2})
    b'{"ece":"NaN","n":2}\\n'
    """
    return json.dumps(_named(row), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Row:
    """Read a row back; raises `ValueError` where the line is not one.

    >>> decode(b'{"ece":"NaN","schema":1,"key":"","spec":{}}')["ece"]
    nan
    """
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("lists inside lists without end") from None
    if not isinstance(row, dict):
        raise ValueError("not a row")
    row = {name: value if name in ("spec", "notes", "env", "data") else _numbers(value) for name, value in row.items()}
    newer = isinstance(row.get("schema"), int) and row["schema"] > SCHEMA  # refused by whoever asked for the row
    if not newer and (wrong := misfit(row, ROW)):
        raise ValueError(wrong)
    return row


def stable(row: Mapping[str, Any]) -> Row:
    """Give what has to be the same whenever and wherever the cell runs.

    >>> stable({"key": "k", "accuracy": 0.5, "seconds": 1.0})
    {'key': 'k', 'accuracy': 0.5}
    """
    return {name: value for name, value in row.items() if name not in VOLATILE}


def pooled(bars: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, float]]:
    """Take the bins of several sets as those of one: images, mean confidence and accuracy of each; zeros if empty.

    >>> pooled([{"counts": [1, 0], "confidence": [0.5, 0], "accuracy": [1.0, 0]},
    ...         {"counts": [3, 0], "confidence": [0.75, 0], "accuracy": [0.0, 0]}])
    [(4, 0.6875, 0.25), (0, 0.0, 0.0)]
    """
    bins = []
    for parts in zip(*(zip(b["counts"], b["confidence"], b["accuracy"], strict=True) for b in bars), strict=True):
        count = sum(part[0] for part in parts)
        confidence, accuracy = (math.fsum(part[0] * part[i] for part in parts) / (count or 1) for i in (1, 2))
        bins.append((count, confidence, accuracy))
    return bins


def file_of(store: str | Path) -> Path:
    """Find the file of a store: itself, or `rows.jsonl` where a folder was named.

    >>> file_of("results").as_posix(), file_of("results/cifar10.jsonl").as_posix()
    ('results/rows.jsonl', 'results/cifar10.jsonl')
    """
    path = Path(store).expanduser()
    return path if path.suffix == ".jsonl" else path / "rows.jsonl"


def read(store: str | Path) -> list[Row]:
    """Read every row of a store, changing nothing. A torn last line, from a run that was cut off, is passed over.

    A row of a grid that is not whole says so under `GRID`.
    """
    path = file_of(store)
    wanted = grids.read(path)  # before the rows: a bench that ends just now has forgotten its grid, and has all rows
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path}: no such store. Make one: steep bench RECIPE --store {store}") from None
    except OSError as error:
        raise StoreError(f"{path}: expected a readable file of rows, got {error.strerror or error}") from error
    rows = parse(content.split(b"\n")[:-1] if content else [], path)
    shares = grids.shares(wanted, {row["key"] for row in rows})
    for row in rows:
        row.pop(GRID, None)  # not for a file to say
        if row["key"] in shares:
            row[GRID] = shares[row["key"]]
    return rows


def parse(lines: Iterable[bytes], path: Path, *, first: int = 1) -> list[Row]:
    """Decode whole lines; refuse damaged ones and those of a newer steep, with the line's number."""
    rows = []
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            row = decode(line)
        except ValueError as error:
            raise StoreError(
                f"{path}: line {number} is damaged ({error}). Move that line out of the file; its cell will run again"
            ) from error
        schema = row["schema"]
        if not isinstance(schema, int) or schema > SCHEMA:
            raise StoreError(
                f"{path}: line {number} was written by a newer steep (schema {schema}, this one knows {SCHEMA}). "
                "Upgrade steep, or name another store"
            )
        rows.append(row)
    return rows


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _named(v) for name, v in value.items()}
    return [_named(v) for v in value] if isinstance(value, (list, tuple)) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, str):
        return _NAMES.get(value, value)
    if isinstance(value, dict):
        return {name: _numbers(v) for name, v in value.items()}
    return [_numbers(v) for v in value] if isinstance(value, list) else value
