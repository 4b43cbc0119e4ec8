"""The few sums a report needs, over rows: seeds, mean corruption error, pooled calibration, rank correlation.

The same as in `steep.metrics` and `steep.analysis`, which bring torch along; tests hold them together.
"""

from __future__ import annotations

import bisect
import math
import operator
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steep.bench.rows import pooled


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over n seeds; one seed has no deviation.

    >>> Spread.of([1.0, 2.0, 3.0])
    Spread(mean=2.0, sd=1.0, n=3)
    >>> Spread.of([])
    """

    mean: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        """Summarise; None where there is nothing, NaN where something is NaN."""
        every = list(values)
        if not every:
            return None
        if not all(map(math.isfinite, every)):
            return cls(math.nan, None, len(every))
        return cls(statistics.fmean(every), statistics.stdev(every) if len(every) > 1 else None, len(every))


def mean_corruption_error(errors: Mapping[str, float], source: Mapping[str, float]) -> float | None:
    """Mean over shifts of error (a mean or a sum over severities) as a multiple of the source model's.

    None where the source model lacks a shift, or makes no error on one.

    >>> mean_corruption_error({"fog": 0.25, "snow": 0.25}, {"fog": 0.5, "snow": 0.25})
    0.75
    """
    if not errors or any(not source.get(name) for name in errors):
        return None
    return statistics.fmean(error / source[name] for name, error in errors.items())


def pooled_ece(bars: Sequence[Mapping[str, Any] | None]) -> float | None:
    """Expected calibration error of several sets taken as one, from the bins of each.

    >>> pooled_ece([{"counts": [0, 2], "confidence": [0.0, 0.75], "accuracy": [0.0, 0.5]},
    ...             {"counts": [2, 0], "confidence": [0.25, 0.0], "accuracy": [0.5, 0.0]}])
    0.25
    """
    whole = [bar for bar in bars if bar is not None]
    if len(whole) < len(bars):
        return math.nan
    bins = pooled(whole)
    total = sum(count for count, _, _ in bins)
    return sum(count * abs(accuracy - confidence) for count, confidence, accuracy in bins) / total if total else None


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's, ties sharing their mean rank; None for fewer than 3 pairs, or where one side never changes.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(first) < 3 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    return round(statistics.correlation(_ranks(first), _ranks(second)), 12)


def chance_of(first: Sequence[float], second: Sequence[float], times: int = 10_000) -> float | None:
    """Give how often a shuffled pairing has a rank correlation as far from zero: a permutation test, two-sided.

    >>> chance_of([1, 2, 3], [1, 2, 3]) > 0.3  # 2 of 6 pairings
    True
    """
    found = rank_correlation(first, second)
    if found is None:
        return None
    # seeded, so that the same rows give the same page
    shuffled = random.Random(0)  # nosec B311
    a, b = _ranks(first), _ranks(second)
    middle = (len(a) + 1) / 2
    a, b = [rank - middle for rank in a], [rank - middle for rank in b]
    least = abs(sum(map(operator.mul, a, b))) * (1 - 1e-9)
    far = 0
    for _ in range(times):
        shuffled.shuffle(b)
        far += abs(sum(map(operator.mul, a, b))) >= least
    return (far + 1) / (times + 1)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [bisect.bisect_left(ordered, v) + (1 + ordered.count(v)) / 2 for v in values]
