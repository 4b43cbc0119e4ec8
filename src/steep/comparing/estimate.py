"""The gain of a method over the source model, estimated without labels: by four signs of how right a model is.

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

import torch
from torch import Tensor

from steep.core.answers import agreement, uncertainty, variety
from steep.core.losses import widen
from steep.metrics.differences import signed

SIGNS = ("doubt", "steadiness", "variety", "batch_variety")
HELPING, HARMING, UNSURE = "helping", "harming", "cannot tell"


class Signs:
    """Adds up over a stream, batch by batch; each sign is between 0 and 1 whatever the number of classes.

    >>> signs = Signs()
    >>> signs.add(torch.tensor([[9.0, -9.0]]), torch.tensor([[5.0, 0.0]]))
    >>> signs.add(torch.tensor([[-9.0, 9.0]]), torch.tensor([[5.0, 0.0]]))
    >>> {name: round(value, 3) for name, value in signs.read().items()}
    {'doubt': 0.0, 'steadiness': 0.5, 'variety': 1.0, 'batch_variety': 0.0}
    """

    def __init__(self) -> None:
        self.images: float = 0
        self._sums: Tensor | float = 0.0  # of doubt, steadiness and variety of a batch, on the device
        self._shares: Tensor | float = 0.0  # of each class in the answers, added up

    @torch.no_grad()
    def add(self, logits: Tensor, view: Tensor, keep: float = 1) -> None:
        """Take in the answers to a batch and to another view of the same images; what came before counts `keep`."""
        n = len(logits)
        now = torch.stack([uncertainty(logits), agreement(logits, view), variety(logits)])
        wide = torch.float32 if logits.device.type == "mps" else torch.float64  # mps has no float64
        self._sums = keep * self._sums + n * now.to(wide)
        self._shares = keep * self._shares + widen(logits).softmax(dim=1).to(wide).sum(dim=0)
        self.images = keep * self.images + n

    def read(self) -> dict[str, float]:
        """Give the mean of each sign: entropies as a share of the largest there can be.

        Doubt is the entropy of an answer, steadiness the share of images whose other view gets the same class, variety
        the entropy of the mean answer, over the whole stream and within a batch: classes that come one after the other
        show in the first alone, a model that has forgotten classes in both.
        """
        sums, shares = torch.as_tensor(self._sums) / self.images, torch.as_tensor(self._shares) / self.images
        most = math.log(len(shares))
        doubt, steadiness, within = sums.tolist()
        whole = float(torch.special.entr(shares).sum())
        return dict(zip(SIGNS, (doubt / most, steadiness, whole / most, within / most), strict=True))


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

    @property
    def sentence(self) -> str:
        """Say it in words.

        >>> Estimate(4.0, 1.0, 7.0).sentence
        'adapting is helping: +4.0 points over the source model (estimated without labels, 90 %: +1.0 to +7.0)'
        """
        what = "cannot tell whether adapting helps" if self.verdict == UNSURE else f"adapting is {self.verdict}"
        gain, low, high = (signed(value, 1) for value in self)
        return f"{what}: {gain} points over the source model (estimated without labels, 90 %: {low} to {high})"


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
