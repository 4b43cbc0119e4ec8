"""How sure a number of some rows is: its standard error, from seeds and from how many images there were.

Where there are several seeds, their spread gives one; so many images, answered right or wrong, give another. The larger
one counts, and a difference of less than two of them is not significant.

Where rows say which images were right, an image is what was drawn: its answers under several corruptions hang together,
and so do those of two methods, of which only the difference counts. Rows that do not say it are taken as if each
answer were drawn by itself, which makes too much of the error of a difference between methods that agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from steep.bench.rows import Row, grouped, pooled, unpacked
from steep.metrics import Reliability
from steep.metrics.differences import ERRORS as ERRORS
from steep.metrics.differences import ByImage, drawn
from steep.metrics.differences import Measured as Measured
from steep.report.paper import CLEAN
from steep.report.words import plain

if TYPE_CHECKING:
    from steep.report.tables import Line

Point: TypeAlias = tuple[str, int]  # (shift, severity)


def places(line: Line, severities: Sequence[int], *, clean: bool = False) -> dict[Point, list[Row]]:
    """Sort the rows of a line by shift and severity: those of a view that are one shift each, or the clean ones."""
    rows = [row for row in line.rows if (row["spec"]["shift"] == CLEAN) == clean and not row.get("segments")]
    of_view = [row for row in rows if clean or row["spec"]["severity"] in severities]
    return grouped(of_view, lambda row: (plain(row["spec"]["shift"]), row["spec"]["severity"]))


def accuracy(points: Mapping[Point, Sequence[Row]]) -> Measured | None:
    """Mean accuracy over points, in percent.

    >>> accuracy({("fog", 5): [{"spec": {}, "accuracy": 0.9, "n": 100}]})
    Measured(value=90.0, error=3.0)
    """
    return weighted(points, dict.fromkeys(points, 1 / len(points))) if points else None


def whole_seeds(points: Mapping[Point, Sequence[Row]]) -> dict[Point, dict[int, Row]]:
    """Keep the seeds that every point has: each mean is over the same images. Nothing where there is none.

    >>> one, two = {"spec": {"seed": 0}}, {"spec": {"seed": 1}}
    >>> {point: list(seeds) for point, seeds in whole_seeds({("fog", 5): [one, two], ("snow", 5): [two]}).items()}
    {('fog', 5): [1], ('snow', 5): [1]}
    """
    by_seed = {point: {row["spec"].get("seed", 0): row for row in rows} for point, rows in points.items()}
    whole = set.intersection(*(set(rows) for rows in by_seed.values())) if by_seed else set()
    return {point: {seed: rows[seed] for seed in sorted(whole)} for point, rows in by_seed.items()} if whole else {}


def weighted(points: Mapping[Point, Sequence[Row]], weights: Mapping[Point, float]) -> Measured | None:
    """Weighted sum of accuracies, in percent, over the seeds that every point has; None where there is none."""
    by_seed = whole_seeds(points)
    if not by_seed:
        return None
    whole = sorted(next(iter(by_seed.values())))
    sums = [math.fsum(weights[p] * float(rows[seed]["accuracy"]) for p, rows in by_seed.items()) for seed in whole]
    if not all(map(math.isfinite, sums)):
        return None
    spread = statistics.stdev(sums) / math.sqrt(len(sums)) if len(sums) > 1 else 0.0
    images = _by_image(by_seed, weights)
    if images:
        return Measured(100 * statistics.fmean(sums), max(100 * spread, drawn(images)), 100 * spread, images)
    variance = 0.0
    for point, rows in by_seed.items():
        right = statistics.fmean(float(rows[seed]["accuracy"]) for seed in whole)
        variance += weights[point] ** 2 * right * (1 - right) / min(int(rows[seed]["n"]) for seed in whole)
    error = max(spread, math.sqrt(max(0.0, variance)))
    return Measured(100 * statistics.fmean(sums), 100 * error, 100 * spread)


def _by_image(by_seed: Mapping[Point, Mapping[int, Row]], weights: Mapping[Point, float]) -> ByImage:
    """What each image adds to a weighted sum of accuracies, in percent; nothing where a row does not say it.

    Corruptions are of the same images, in the same order; other sets are told apart by their digest.
    """
    shares: dict[tuple[str, ...], npt.NDArray[np.float64]] = {}
    for point, rows in by_seed.items():
        for row in rows.values():
            n, spec = int(row["n"]), row["spec"]
            right = unpacked(row.get("right", ""), n)
            if right is None or spec.get("protocol") != "reset":
                return {}
            of = (spec["data"], str(n)) if point[1] else tuple(data["sha256"] for data in row["data"])
            adds = shares.setdefault(of, np.zeros(n))
            adds += 100 * weights[point] * right / (n * len(rows))
    return shares


def bars_of(points: Mapping[Point, Sequence[Row]], bins: str = "calibration") -> tuple[Reliability | None, int]:
    """Pool the bins of all points, over the seeds that every point has, and count these; None where bins are missing.

    `bins` names the bins of a row: `calibration` are 15, `reliability` 10, as in the published code.
    """
    by_seed = whole_seeds(points)
    bars = [row.get(bins) for seeds in by_seed.values() for row in seeds.values()]
    known = [bar for bar in bars if bar is not None]
    seeds = len(next(iter(by_seed.values()), ()))
    return pooled(known) if known and len(known) == len(bars) else None, seeds


def calibration_error(bars: Reliability, seeds: int = 1) -> Measured:
    """Expected calibration error, in percent.

    Where the same images were answered with several seeds, their answers are no more independent than those of one.

    >>> bars = pooled([{"counts": [25, 75], "confidence": [0.5, 0.9], "accuracy": [0.8, 0.8]}])
    >>> round(calibration_error(bars).value, 6)
    15.0
    """
    parts = zip(bars.counts, bars.accuracy, strict=True)
    # as long as no bin changes sides, the error is a sum of right answers, of which each bin's are binomial
    spread = math.sqrt(seeds * math.fsum(count * right * (1 - right) for count, right in parts)) / sum(bars.counts)
    return Measured(100 * bars.ece, 100 * spread)
