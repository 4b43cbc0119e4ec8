"""Sample grids on the page: the small PNGs that rows of `steep analyze samples` carry."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias

from steep.bench.rows import Row
from steep.report.words import plain

BUDGET = 2_500_000  # bytes of pictures in a page; what is more stays in the files beside the rows
_PNG = b"\x89PNG\r\n\x1a\n"
_KINDS = {"real": "test images", "chain": "chains over SGLD steps", "buffer": "the replay buffer over batches"}
_NUMBERS = ("mean_distance", "covariance_distance")
_ORDER = ("real", "samples", "chain", "buffer")

Picture: TypeAlias = tuple[str, str, str]  # PNG in base64, what it shows, its caption


def grids(rows: Sequence[Row]) -> tuple[list[tuple[str, list[Picture]]], int]:
    """Give the pictures of some rows: for each shift the real images and, beside them, those of every model.

    And how many are left out: no PNG, or more than a page should carry.
    """
    places: dict[tuple[Any, ...], list[Row]] = {}
    left, left_out = BUDGET, 0
    for row in rows:
        if row.get("part") != "picture":
            continue
        text = row.get("png")
        if not isinstance(text, str) or not is_png(text) or len(text) > left:
            left_out += 1
            continue
        left -= len(text)
        places.setdefault(place_of(row), []).append(row)
    several = len({place[-1] for place in places}) > 1
    distances = {(place_of(row), row.get("label")): row for row in rows if row.get("part") == "distance"}
    parts = []
    for place, pictures in places.items():
        pictures.sort(key=lambda row: _ORDER.index(row["kind"]) if row.get("kind") in _ORDER else len(_ORDER))
        where = where_of(*place[:-1], run=place[-1] if several else None)
        parts.append((where, [_picture(row, distances.get((place, row.get("label")), {})) for row in pictures]))
    return parts, left_out


def _picture(row: Row, distance: Row) -> Picture:
    kind = _KINDS.get(str(row.get("kind")), plain(row.get("kind")))
    about = caption = kind if row.get("kind") == "real" else f"{plain(row.get('label'))}: {kind}"
    numbers = [number for name in _NUMBERS if isinstance(number := distance.get(name), float)]
    if row.get("kind") in ("real", "samples") and len(numbers) == 2:
        caption += f". Distance to the test set: mean {numbers[0]:.3f}, covariance {numbers[1]:.4f}"
    return row["png"], about, caption


def place_of(row: Row) -> tuple[Any, ...]:
    """Name the set a row is of, and its run."""
    return tuple(row.get(name) for name in ("data", "source", "shift", "severity", "seed", "run"))


def where_of(data: Any, source: Any, shift: Any, severity: Any, seed: Any, *, run: Any) -> str:
    """Say which set that is."""
    place = f"{source} → {shift}" if source else f"{data}, {shift}"
    place += (f" {severity}" if severity else "") + (f", seed {seed}" if seed else "")
    return plain(place + (f", run {run}" if run else ""))


def is_png(text: str) -> bool:
    """Tell whether base64 text holds a PNG; a store may come from a stranger."""
    try:
        return base64.b64decode(text, validate=True).startswith(_PNG)
    except (binascii.Error, ValueError):
        return False
