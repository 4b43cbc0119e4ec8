"""The gain of a method over the source model, estimated without labels.

gain = Σ weight · (sign of the adapted model − sign of the source model), within ± the share of images whose class has
changed: more cannot be gained or lost. `benchmarks/label_free_fit.py` fits the numbers to streams with labels and
writes them to estimate.toml (docs/compare.md).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

HELPING, HARMING, UNSURE = "helping", "harming", "cannot tell"


class Estimate(NamedTuple):
    """A gain in points with its interval.

    >>> Estimate(4.0, 1.0, 7.0).verdict, Estimate(4.0, -1.0, 9.0).verdict
    ('helping', 'cannot tell')
    """

    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Say whether the interval is above or below zero."""
        return HELPING if self.low > 0 else HARMING if self.high < 0 else UNSURE


@cache
def fitted() -> dict[str, Any]:
    """Read the fitted numbers, and what they were fitted to."""
    return tomllib.loads((resources.files("steep.comparing") / "estimate.toml").read_text(encoding="utf-8"))


def estimated_accuracy(signs: Mapping[str, float]) -> float:
    """Estimate an accuracy in percent, which is much less sure than a gain: a model may be sure, steady and wrong."""
    return 100 * min(1.0, max(0.0, float(fitted()["base"]) + _score(signs, "accuracy")))


def estimated_gain(source: Mapping[str, float], adapted: Mapping[str, float], changed: float) -> Estimate:
    """Estimate how many points a model gains over the source, by the signs of both (`Signs.read`) on the same images.

    `changed` is the share of the images that get another class from it. The more there are, the wider the interval.
    """
    gain = min(max(_score(adapted, "gain") - _score(source, "gain"), -changed), changed)
    margin = fitted()["interval"] * math.sqrt(changed)
    return Estimate(100 * gain, 100 * max(gain - margin, -changed), 100 * min(gain + margin, changed))


def _score(signs: Mapping[str, float], of: str) -> float:
    return math.fsum(weight * signs[name] for name, weight in fitted()[of].items())
