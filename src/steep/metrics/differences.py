"""A number with its standard error, and differences taken image by image: how sure is it that one is better?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

MISSING = "–"
ERRORS = 2  # standard errors that a difference has to reach: an interval of 95 %

ByImage: TypeAlias = Mapping[tuple[str, ...], npt.NDArray[np.float64]]  # what each image of a set adds to a number


@dataclass(frozen=True)
class Measured:
    """A number, in percent or points, and its standard error.

    >>> gain = Measured(85.0, 0.3) - Measured(83.0, 0.4)
    >>> str(gain), gain.side
    ('+2.0 points (95 %: +1.0 to +3.0)', 1)
    >>> str(Measured(0.5, 0.4)), str(Measured(0.0, 0.7))
    ('+0.5 points (95 %: −0.3 to +1.3), not significant', 'tie (95 %: −1.4 to +1.4)')
    """

    value: float
    error: float
    seeds: float = field(default=0.0, compare=False, repr=False)  # the spread of seeds alone
    images: ByImage = field(default_factory=dict, compare=False, repr=False)  # empty where rows do not say it

    def __sub__(self, other: Measured) -> Measured:
        """Take the difference: image by image where both are of the same ones, else as of different runs."""
        value, seeds = self.value - other.value, math.hypot(self.seeds, other.seeds)
        if not self.images or self.images.keys() != other.images.keys():
            return Measured(value, math.hypot(self.error, other.error), seeds)
        images = {of: shares - other.images[of] for of, shares in self.images.items()}
        return Measured(value, max(seeds, drawn(images)), seeds, images)

    def __rsub__(self, number: float) -> Measured:
        """Take it from a number that is known."""
        return Measured(
            number - self.value, self.error, self.seeds, {of: -shares for of, shares in self.images.items()}
        )

    def __neg__(self) -> Measured:
        """Turn a difference round."""
        return 0.0 - self

    def __str__(self) -> str:
        digits = 2 if self.side and abs(self.value) < 0.1 else 1
        low, high = (signed(self.value + sign * ERRORS * self.error, digits) for sign in (-1, 1))
        if not self.side and abs(self.value) < 0.05:
            return f"tie (95 %: {low} to {high})" if self.error else "tie"  # the same answers: nothing was drawn
        return f"{signed(self.value, digits)} points (95 %: {low} to {high})" + (
            "" if self.side else ", not significant"
        )

    @property
    def side(self) -> int:
        """Say whether it is above (1) or below (−1) zero; 0 where it is not significant or no number."""
        if not abs(self.value) > ERRORS * self.error:  # NaN too
            return 0
        return 1 if self.value > 0 else -1


def drawn(images: ByImage) -> float:
    """Standard error of a sum over images, had others like them been drawn.

    >>> drawn({("fog",): np.array([1.0, 0.0, 0.0, 1.0])})  # √(4 · 1/3)
    1.1547005383792515
    """
    return math.sqrt(
        math.fsum(len(shares) * float(shares.var(ddof=1)) for shares in images.values() if len(shares) > 1)
    )


def number(value: float | None, digits: int = 2) -> str:
    """Write a number; what is missing is a dash, never a zero."""
    if value is None:
        return MISSING
    return "NaN" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """Write a difference with its sign."""
    if value is None or value != value:
        return number(value)
    value = round(value, digits) or 0.0  # no sign where no digit is left
    return ("+" if value > 0 else "") + number(value, digits)
