"""Spearman's rank correlation: whether two numbers rise together, however unevenly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlate ranks, ties sharing their mean rank. NaN for fewer than 3 pairs or where one side never changes.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(first) != len(second):
        raise ValueError(f"expected as many of one as of the other, got {len(first)} and {len(second)}")
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean() if len(a) else a, b - b.mean() if len(b) else b
    spread = math.sqrt(float(a @ a) * float(b @ b))
    if len(a) < 3 or not spread or not np.isfinite([*first, *second]).all():
        return math.nan
    return round(float(a @ b) / spread, 12)


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, place, count = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    mean: NDArray[np.float64] = (last - (count - 1) / 2)[place]
    return mean
