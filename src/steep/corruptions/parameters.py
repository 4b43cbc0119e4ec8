"""The severity tables of the corruption benchmark: `parameters.toml`, and what stands in between its sizes.

There are published tables for 32x32, 64x64 and 224x224. `lookup` uses the last one from 128 pixels on; for other sizes
it scales the first two, which is an approximation and is named "scaled".
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import numpy as np

from steep.errors import InputError, check_known

Values = tuple[float, ...]

_ROWS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

BENCHMARK: tuple[str, ...] = tuple(name for name, row in _ROWS.items() if row.get("benchmark", True))
"""The 15 corruptions of the benchmark, in the paper's order."""

EXTRA: tuple[str, ...] = tuple(name for name in _ROWS if name not in BENCHMARK)
"""The 4 corruptions kept for validation."""

CORRUPTIONS: tuple[str, ...] = BENCHMARK + EXTRA
"""All 19 corruptions by name."""

DETERMINISTIC: tuple[str, ...] = tuple(name for name, row in _ROWS.items() if not row.get("draws", True))
"""These draw nothing: two sets made with the same numbers are the same picture by picture."""

LARGE = 128  # from this shorter side on pictures are corrupted as those of ImageNet-C

# What each number of a row means. A name in `LENGTHS` is a length in pixels.
FIELDS: dict[str, tuple[str, ...]] = {name: tuple(row["fields"]) for name, row in _ROWS.items()}
LENGTHS = frozenset({"radius", "sigma", "shift"})
WHOLE = frozenset({"shift", "iterations", "quality", "kind"})

# The five rows of numbers of each corruption, by table.
PUBLISHED: dict[str, dict[str, tuple[Values, ...]]] = {
    table: {name: tuple(map(tuple, row[table])) for name, row in _ROWS.items()}
    for table in ("cifar", "tiny-imagenet", "imagenet")
}


def whole_number(label: str, number: object) -> int:
    """Return a whole number of Python or numpy as int; a bool is none, whatever Python says."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise InputError(f"{label}: expected a whole number, got {number!r}")
    return int(number)


def checked(name: str, severity: object) -> tuple[str, int]:
    """Check the name of a corruption, with its near match in the error, and a severity."""
    check_known("corruption", CORRUPTIONS, str(name))
    if isinstance(severity, bool) or not isinstance(severity, int | np.integer) or not 1 <= severity <= 5:
        raise InputError(f"severity: expected a whole number from 1 to 5, got {severity!r}")
    return name, int(severity)


def table_for(height: int, width: int) -> str:
    """Name the table that pictures of this size are corrupted by, unless another is asked for."""
    exact = {(32, 32): "cifar", (64, 64): "tiny-imagenet"}.get((height, width), "scaled")
    return "imagenet" if min(height, width) >= LARGE else exact


def lookup(name: str, severity: int, height: int, width: int, table: str | None = None) -> Values:
    """Return the numbers of one corruption at one severity, in the order of `FIELDS[name]`."""
    name, severity = checked(name, severity)
    table = table_for(height, width) if table is None else table
    if table == "scaled":
        return scaled(name, severity, min(height, width))
    check_known("corruption table", (*PUBLISHED, "scaled"), table)
    return PUBLISHED[table][name][severity - 1]


def scaled(name: str, severity: int, side: int) -> Values:
    """Return the numbers for a picture whose shorter side is `side`: an approximation of our own.

    Between 32 and 64 pixels every number is interpolated between the two published tables, linearly in
    log(side). Above 64 the 64-pixel table holds and lengths in pixels grow with the side. Below 32 the
    32-pixel table holds as it is: scaled-down lengths would soon fall below one pixel and do nothing.
    """
    small, large = (PUBLISHED[table][name][severity - 1] for table in ("cifar", "tiny-imagenet"))
    share = min(max(math.log2(side / 32), 0.0), 1.0)
    growth = max(side / 64, 1.0)
    values = []
    for field, a, b in zip(FIELDS[name], small, large, strict=True):
        value = a + (b - a) * share
        if field in LENGTHS:
            value *= growth
        values.append(float(max(round(value), 0)) if field in WHOLE else value)
    return tuple(values)
