"""The few sums a report needs, over rows: seeds, mean corruption error, pooled calibration.

The same as in `steep.metrics`, which works on tensors; a test holds the two together.
"""

from __future__ import annotations

import math
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
