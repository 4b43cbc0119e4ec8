"""The severity tables of the corruption benchmark, as data.

The numbers are facts of the benchmark of Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to
Common Corruptions and Perturbations" (ICLR 2019): one table for its 32x32 sets (CIFAR-10-C, CIFAR-100-C), one
for its 64x64 set (Tiny-ImageNet-C). For any other size there is no published table of this family; `lookup`
then scales these two, which is an approximation and is named "scaled".
"""

from __future__ import annotations

import math

import numpy as np

from steep.errors import InputError, unknown

Values = tuple[float, ...]

BENCHMARK: tuple[str, ...] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The 15 corruptions of the benchmark, in the paper's order."""

EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The 4 corruptions kept for validation."""

CORRUPTIONS: tuple[str, ...] = BENCHMARK + EXTRA
"""All 19 corruptions by name."""

DETERMINISTIC: tuple[str, ...] = (
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
)
"""These draw nothing: two sets made with the same numbers are the same picture by picture."""

TABLES: tuple[str, ...] = ("cifar", "tiny-imagenet", "scaled")

# What each number of a row means. A name in `LENGTHS` is a length in pixels.
FIELDS: dict[str, tuple[str, ...]] = {
    "gaussian_noise": ("std",),
    "shot_noise": ("photons",),
    "impulse_noise": ("fraction",),
    "defocus_blur": ("radius", "alias_sigma"),
    "glass_blur": ("sigma", "shift", "iterations"),
    "motion_blur": ("radius", "sigma"),
    "zoom_blur": ("stop",),  # factors are arange(1, stop, 0.01): see blur.zoom_factors
    "snow": ("mean", "std", "zoom", "threshold", "radius", "sigma", "mix"),
    "frost": ("image_weight", "frost_weight"),
    "fog": ("strength", "decay"),
    "brightness": ("added",),
    "contrast": ("factor",),
    "elastic_transform": ("alpha", "field_sigma", "jitter"),  # fractions of the side, so never rescaled
    "pixelate": ("scale",),
    "jpeg_compression": ("quality",),
    "speckle_noise": ("std",),
    "gaussian_blur": ("sigma",),
    "spatter": ("mean", "std", "sigma", "threshold", "strength", "kind"),
    "saturate": ("multiply", "add"),
}
LENGTHS = frozenset({"radius", "sigma", "shift"})
WHOLE = frozenset({"shift", "iterations", "quality", "kind"})

# fmt: off
CIFAR: dict[str, tuple[Values, ...]] = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": (
        (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
    "speckle_noise": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    "gaussian_blur": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
}

TINY_IMAGENET: dict[str, tuple[Values, ...]] = {
    "gaussian_noise": ((0.04,), (0.08,), (0.12,), (0.15,), (0.18,)),
    "shot_noise": ((250,), (100,), (50,), (30,), (15,)),
    "impulse_noise": ((0.01,), (0.02,), (0.05,), (0.08,), (0.14,)),
    "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    "zoom_blur": CIFAR["zoom_blur"],
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8), (0.1, 0.2, 1, 0.5, 10, 4, 0.8), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
    "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    "elastic_transform": (
        (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02),
    ),
    "pixelate": ((0.9,), (0.8,), (0.7,), (0.6,), (0.5,)),
    "jpeg_compression": ((65,), (58,), (50,), (40,), (25,)),
    "speckle_noise": ((0.15,), (0.2,), (0.25,), (0.3,), (0.35,)),
    "gaussian_blur": ((0.5,), (0.75,), (1,), (1.25,), (1.5,)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.6, 0), (0.65, 0.1, 0.8, 0.7, 0.6, 0), (0.65, 0.3, 1, 0.69, 0.6, 0),
        (0.65, 0.1, 0.7, 0.68, 0.6, 1), (0.65, 0.1, 0.5, 0.67, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
}
# fmt: on


def table_for(height: int, width: int) -> str:
    """Name the table a picture of this size gets when none is asked for.

    >>> table_for(32, 32), table_for(64, 64), table_for(28, 28)
    ('cifar', 'tiny-imagenet', 'scaled')
    """
    return {(32, 32): "cifar", (64, 64): "tiny-imagenet"}.get((height, width), "scaled")


def whole_number(label: str, number: object) -> int:
    """Return a whole number of Python or numpy as int; a bool is none, whatever Python says.

    >>> import numpy as np
    >>> whole_number("seed", np.int64(3))
    3
    """
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise InputError(f"{label}: expected a whole number, got {number!r}")
    return int(number)


def checked(name: str, severity: object) -> tuple[str, int]:
    """Check the name of a corruption, with its near match in the error, and a severity."""
    if name not in FIELDS:
        raise unknown("corruption", str(name), CORRUPTIONS)
    if isinstance(severity, bool) or not isinstance(severity, int | np.integer) or not 1 <= severity <= 5:
        raise InputError(f"severity: expected a whole number from 1 to 5, got {severity!r}")
    return name, int(severity)


def lookup(name: str, severity: int, height: int, width: int, table: str | None = None) -> Values:
    """Return the numbers of one corruption at one severity, in the order of `FIELDS[name]`.

    >>> lookup("fog", 5, 32, 32)
    (1.5, 1.75)
    >>> lookup("motion_blur", 5, 96, 96)  # scaled: half as long again as at 64
    (18.0, 4.5)
    """
    name, severity = checked(name, severity)
    table = table_for(height, width) if table is None else table
    if table not in TABLES:
        raise unknown("corruption table", table, TABLES)
    if table == "scaled":
        return scaled(name, severity, min(height, width))
    return {"cifar": CIFAR, "tiny-imagenet": TINY_IMAGENET}[table][name][severity - 1]


def scaled(name: str, severity: int, side: int) -> Values:
    """Return the numbers for a picture whose shorter side is `side`: an approximation of our own.

    Between 32 and 64 pixels every number is interpolated between the two published tables, linearly in
    log(side). Above 64 the 64-pixel table holds and lengths in pixels grow with the side. Below 32 the
    32-pixel table holds as it is: scaled-down lengths would soon fall below one pixel and do nothing.

    >>> scaled("gaussian_noise", 5, 45) == lookup("gaussian_noise", 5, 45, 45)
    True
    """
    small, large = CIFAR[name][severity - 1], TINY_IMAGENET[name][severity - 1]
    share = min(max(math.log2(side / 32), 0.0), 1.0)
    growth = max(side / 64, 1.0)
    values = []
    for field, a, b in zip(FIELDS[name], small, large, strict=True):
        value = a + (b - a) * share
        if field in LENGTHS:
            value *= growth
        values.append(float(max(round(value), 0)) if field in WHOLE else value)
    return tuple(values)
