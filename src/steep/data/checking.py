"""Compare an existing corruption set with the one steep makes: pixels where nothing is drawn, statistics elsewhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep import corruptions
from steep.corruptions.parameters import checked
from steep.data.arrays import Images, ImageSet
from steep.data.corrupted import SEVERITIES, Variant, as_jpeg, check_shape, file_names, made
from steep.data.downloads import Progress, silent
from steep.data.picture_files import file_images
from steep.data.streamed import streamed
from steep.errors import DataError

_LEVELS = 0.5  # grey levels a mean may be off besides chance
_ERRORS = 4.0  # standard errors that count as chance
_WITHIN = 0.999  # share of values that must lie within one level where nothing is drawn


@dataclass(frozen=True)
class Comparison:
    """One corruption at one severity: (theirs, ours) of each statistic in grey levels, and what follows.

    `verdict` is identical (every byte), same (nothing seen that chance or rounding does not explain) or differs.
    `within` is the share of values at most one level apart, where the corruption draws nothing and the pixels were
    compared; `frost` says which pictures theirs and ours were made with, where frost is compared.
    """

    corruption: str
    severity: int
    mean: tuple[float, float]
    std: tuple[float, float]
    distance: tuple[float, float]  # mean absolute distance to the clean picture
    verdict: str
    within: float | None = None
    frost: tuple[str, str] | None = None


def check(
    folder: str | os.PathLike[str],
    data: ImageSet,
    *,
    only: str | Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    sample: int = 500,
    progress: Progress = silent,
) -> list[Comparison]:
    """Compare the corrupted set in `folder` with ours on the first `sample` pictures of the clean set `data`.

    The corruptions that draw nothing are compared value by value: 99.9 % must lie within one level (but not where the
    published set carries another JPEG pass, which spreads such differences). The random ones can only be compared by
    their statistics, picture by picture: one differs when the mean of the differences exceeds half a grey level by more
    than four standard errors. That lets another draw pass and finds a parameter that moves mean, spread or distance to
    clean by more than this; it does not find a smaller change, nor one that leaves all three alone, such as another
    direction of motion or another arrangement of the same drops.
    """
    place = Path(folder)
    check_shape(data)
    names = (only,) if isinstance(only, str) else only
    part = replace(data, images=np.asanyarray(data.images[:sample]), labels=data.labels[:sample])
    rows: list[Comparison] = []
    wanted = [(name, level) for name in (names or corruptions.CORRUPTIONS) for level in severities]
    for done, (name, level) in enumerate(wanted, 1):
        checked(name, level)
        variant = Variant(place, data.name, name, level)
        theirs = _theirs(variant, data, sample)
        progress(f"{name} {level}", done, len(wanted))
        if theirs is None:
            if names:
                raise DataError(f"{place}: holds no {name} of severity {level}")
            continue
        if theirs.shape != part.images.shape:
            raise DataError(f"{place}: {name} {level}: expected {part.images.shape} for a sample, got {theirs.shape}")
        ours = made(part, name, level, seed=seed).images
        row = _compared(name, level, theirs, ours, part.images, pixels=not as_jpeg(data))
        if name == "frost":
            row = replace(row, frost=(variant.entry.get("frost", "published"), corruptions.frost_source()))
        rows.append(row)
    if not rows:
        raise DataError(f"{place}: holds no corruption in a published layout (fog.npy or fog/1/class/*.JPEG)")
    return rows


def _theirs(variant: Variant, data: ImageSet, sample: int) -> Images | None:
    """Read the first `sample` pictures of a variant; None where it is not there."""
    if streamed(data.images) is not None and as_jpeg(data):  # by name, in the clean set's order
        here = variant.folder / variant.corruption / str(variant.severity)
        paths = [here / file for file in file_names(data)[:sample]]
        return np.asarray(file_images(paths, here)) if here.is_dir() else None
    decoded = variant.read(sample, data.classes)
    return None if decoded is None else np.asanyarray(decoded.images)


def _compared(name: str, level: int, theirs: Images, ours: Images, clean: Images, *, pixels: bool) -> Comparison:
    left, right = _statistics(theirs, clean), _statistics(ours, clean)  # each (3, N)
    gap = left - right
    chance = _ERRORS * gap.std(axis=1) / np.sqrt(gap.shape[1])
    alike = bool((np.abs(gap.mean(axis=1)) <= _LEVELS + chance).all())
    within = None
    if pixels and name in corruptions.DETERMINISTIC:
        within = float((np.abs(theirs.astype(np.int16) - ours) <= 1).mean())
        alike = alike and within >= _WITHIN
    verdict = "identical" if np.array_equal(theirs, ours) else "same" if alike else "differs"
    pairs = [(float(a), float(b)) for a, b in zip(left.mean(axis=1), right.mean(axis=1), strict=True)]
    return Comparison(name, level, pairs[0], pairs[1], pairs[2], verdict, within)


def _statistics(images: Images, clean: Images) -> NDArray[np.float64]:
    """Mean, spread and distance to clean of each picture: (3, N)."""
    flat = images.reshape(len(images), -1).astype(np.float32)
    away = np.abs(flat - clean.reshape(len(clean), -1).astype(np.float32))
    return np.stack([flat.mean(1), flat.std(1), away.mean(1)]).astype(np.float64)
