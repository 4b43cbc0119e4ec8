"""What a picture file goes through before a model sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steep.errors import InputError, check_known

LARGEST = 10_000
"""Pixels a side of what a picture is resized to: 300 MB as bytes."""

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


@dataclass(frozen=True, kw_only=True)
class Transform:
    """How a picture becomes a square: its short side is resized to size / crop, then the middle is cut out.

    Without `crop` the whole picture is squeezed into the square; without `size` it stays as it is.
    """

    size: int | None = None
    crop: float | None = None
    interpolation: str = "bilinear"  # all of them smooth where they make a picture smaller

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= LARGEST:
            raise InputError(f"size: expected 1 to {LARGEST:,} pixels, got {self.size}")
        if self.crop is not None and not 0 < self.crop <= 1:
            raise InputError(f"crop: expected a share of the picture, more than 0 and at most 1, got {self.crop}")
        check_known("interpolation", INTERPOLATIONS, self.interpolation)

    def box(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int, int, int]]:
        """Give the size to resize to and the box to cut out, rounded as torchvision and timm do."""
        if self.size is None or self.crop is None:
            sides = (self.size or width, self.size or height)
            return sides, (0, 0, *sides)
        short = math.floor(self.size / self.crop + 1e-6)
        longer = int(short * max(width, height) / min(width, height))
        sides = (short, longer) if width <= height else (longer, short)
        left, top = (round((side - self.size) / 2) for side in sides)
        return sides, (left, top, left + self.size, top + self.size)


AS_IT_IS = Transform()
