"""Rows as they lie in a store: one JSON object a line, strict JSON, each complete in itself.

`schema`, `key`, `spec` · accuracy, error, loss, nll, ece, mce, brier, energy_before, energy_after, n ·
`reliability` (10 bins, for diagrams), `calibration` (15 bins, of which ECE is made), `per_class`, `right` (a bit for
each image, in the order of the sets whatever that of the stream: `packed`), `online` (each image was answered when its
batch came, and the whole set was not one batch), `missed` (batches that a slow method did not learn from), `segments`,
`data` (origin, digest, what was left out, which classes counted), `notes` · seconds, images_per_s, peak_memory,
started, finished, `env` (versions, commit, device).

Beside `rows.jsonl` lies `rows.jsonl.grids`, as long as a bench lacks rows: the keys of the cells of each such grid, so
that a report does not take a part of a bench for the whole.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from steep import files
from steep.bench.spec import SPEC, Shape, misfit
from steep.errors import DataError, SteepError
from steep.files import read_bytes
from steep.metrics import Reliability

Row: TypeAlias = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SCHEMA = 1  # version of a row; raised when an older reader could no longer understand it
# Where a row, once read, holds how much of its grid there is, if not all: cells here, cells in all. No file has it.
GRID = "grid"
# What differs when the same cell runs again.
VOLATILE = ("seconds", "images_per_s", "peak_memory", "started", "finished", "env", GRID)

_TEXT, _WHOLE, _NUMBER, _NONE = (str,), (int,), (int, float), type(None)
_BINS = frozenset({"counts", "confidence", "accuracy"})

# Which values a row may hold, so that a damaged or foreign line is refused where it is read.
ROW: dict[str, Shape] = {
    "schema": _WHOLE,
    "key": _TEXT,
    "spec": SPEC,
    **dict.fromkeys(("accuracy?", "error?", "loss?", "nll?", "ece?", "mce?", "brier?"), _NUMBER),
    **dict.fromkeys(("energy_before?", "energy_after?", "seconds?", "images_per_s?"), _NUMBER),
    **dict.fromkeys(("n?", "nonfinite?", "undone?", "missed?"), _WHOLE),
    "online?": (bool,),
    **dict.fromkeys(("right?", "started?", "finished?"), _TEXT),
    **dict.fromkeys(("reliability?", "calibration?"), _BINS),
    "per_class?": frozenset({"count", "correct", "predicted"}),
    "segments?": [{"name": _TEXT, "n": _WHOLE, "error": _NUMBER, "severity?": _WHOLE, "accuracy?": _NUMBER}],
    "data?": [{"origin?": _TEXT, "sha256?": _TEXT, "images?": _WHOLE}],
    "notes?": [_TEXT],
    "peak_memory?": {"bytes": _WHOLE},
    "env?": {"commit?": (str, _NONE), "device?": (str, _NONE), "versions?": (dict,)},
}


class StoreError(SteepError, RuntimeError):
    """A store that cannot be read or written as it is."""


def encode(row: Mapping[str, Any]) -> bytes:
    """Write a row as one line. JSON has no NaN, so non-finite numbers become the strings "NaN" and "±Infinity"."""
    return json.dumps(_named(row), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Row:
    """Read a row back; raises `ValueError` where the line is not one."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("lists inside lists without end") from None
    if not isinstance(row, dict):
        raise ValueError("not a row")
    row = {name: value if name in ("spec", "notes", "env", "data") else numbers(value) for name, value in row.items()}
    newer = isinstance(row.get("schema"), int) and row["schema"] > SCHEMA  # refused by whoever asked for the row
    if not newer and (wrong := misfit(row, ROW)):
        raise ValueError(wrong)
    return row


def stable(row: Mapping[str, Any]) -> Row:
    """Give what has to be the same whenever and wherever the cell runs."""
    return {name: value for name, value in row.items() if name not in VOLATILE}


def pooled(bars: Sequence[Mapping[str, Any]]) -> Reliability | None:
    """Take the bins of several sets as those of one; None where they hold no answer."""
    bins = []
    for parts in zip(*(zip(b["counts"], b["confidence"], b["accuracy"], strict=True) for b in bars), strict=True):
        count = sum(part[0] for part in parts)
        confidence, accuracy = (math.fsum(part[0] * part[i] for part in parts) / (count or 1) for i in (1, 2))
        bins.append((count, confidence, accuracy))
    if not any(count for count, _, _ in bins):
        return None
    counts, confidences, accuracies = zip(*bins, strict=True)
    edges = tuple(index / len(bins) for index in range(len(bins) + 1))
    return Reliability(edges=edges, counts=counts, confidence=confidences, accuracy=accuracies)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key, in the order they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def packed(right: npt.NDArray[np.bool_]) -> str:
    """Write flags (N,), which images were answered right, as text: a character for six images."""
    return base64.b64encode(np.packbits(right).tobytes()).decode()


def unpacked(text: str, n: int) -> npt.NDArray[np.bool_] | None:
    """Read the flags of n images back; None where the text does not hold as many."""
    try:
        flags = np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8)
    except (binascii.Error, ValueError, TypeError):
        return None
    return np.unpackbits(flags, count=n).astype(bool) if len(flags) == -(-n // 8) else None


def file_of(store: str | Path) -> Path:
    """Find the file of a store: itself, or `rows.jsonl` where a folder was named."""
    path = Path(store).expanduser()
    return path if path.suffix == ".jsonl" else path / "rows.jsonl"


def read(store: str | Path) -> list[Row]:
    """Read every row of a store, changing nothing. A torn last line, from a run that was cut off, is passed over.

    A row of a grid that is not whole says so under `GRID`; one of several such grids counts to the largest.
    """
    path = file_of(store)
    grids = read_grids(path)  # before the rows: a bench that ends just now has forgotten its grid, and has all rows
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        raise StoreError(f"{path}: no such store. Make one: steep bench RECIPE --store {store}") from None
    except OSError as error:
        raise StoreError(f"{path}: expected a readable file of rows, got {error.strerror or error}") from error
    rows = parse(content.split(b"\n")[:-1], path)
    keys = {row["key"] for row in rows}
    for row in rows:
        row.pop(GRID, None)  # not for a file to say
    for grid in sorted(grids, key=len):
        here = keys.intersection(grid)
        for row in rows if len(here) < len(grid) else ():
            if row["key"] in here:
                row[GRID] = (len(here), len(grid))
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
            fix = "Move that line out of the file; its cell will run again"
            raise StoreError(f"{path}: line {number} is damaged ({error}). {fix}") from error
        if row["schema"] > SCHEMA:
            newer = f"a newer steep (schema {row['schema']}, this one knows {SCHEMA})"
            raise StoreError(f"{path}: line {number} was written by {newer}. Upgrade steep, or name another store")
        rows.append(row)
    return rows


def read_grids(store: Path) -> list[list[str]]:
    """Read the keys of each grid that was begun in a file of rows; one of them may have got its last row since."""
    path = _grids_file(store)
    grids = files.read_json(path) if path.exists() else []
    if misfit(grids, [[_TEXT]]):
        raise DataError(f"{path}: expected lists of keys of cells, got something else. Delete it")
    return list(grids)


def write_grids(store: Path, grids: Sequence[list[str]], rows: Container[str]) -> None:
    """Write those grids that lack rows; where none does, leave no file."""
    path = _grids_file(store)
    if lacking := [grid for grid in grids if not all(key in rows for key in grid)]:
        files.write_json(path, lacking)
    else:
        path.unlink(missing_ok=True)


def begun(rows: Iterable[Mapping[str, Any]]) -> str:
    """Say how many cells there are of each bench that some rows are of and that is not whole."""
    shares = dict.fromkeys(tuple(row[GRID]) for row in rows if GRID in row)
    return " and ".join(f"{here:,} of {every:,} cells" for here, every in shares)


def _grids_file(store: Path) -> Path:
    return store.with_name(store.name + ".grids")


def _named(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _named(v) for name, v in value.items()}
    return [_named(v) for v in value] if isinstance(value, (list, tuple)) else value


def numbers(value: Any) -> Any:
    """Turn the words that stand for numbers that are not finite back into these."""
    if isinstance(value, str):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else value
    if isinstance(value, dict):
        return {name: numbers(v) for name, v in value.items()}
    return [numbers(v) for v in value] if isinstance(value, list) else value
