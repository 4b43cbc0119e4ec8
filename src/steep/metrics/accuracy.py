"""Accuracy of one set, and over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from steep.errors import InputError
from steep.metrics.inputs import check_predictions


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Fraction of rows whose largest logit is the label's.

    Args:
        logits: (N, K), the whole test set at once.
        labels: (N,), classes 0 to K − 1.

    >>> import torch
    >>> accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    0.6666666666666666
    """
    _, labels = check_predictions(logits, labels)
    # The logits as they came: argmax needs no conversion.
    return int((logits.argmax(dim=1) == labels).sum()) / len(labels)


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """Mean and sample standard deviation over `n` seeds; one seed has no deviation.

    >>> print(SeedSummary(mean=83.34, sd=0.051, n=5))
    83.34 ± 0.05
    >>> print(SeedSummary(mean=83.34, sd=None, n=1))
    83.34
    """

    mean: float
    sd: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def over_seeds(values: Iterable[float]) -> SeedSummary:
    """Summarise the same number measured under several seeds.

    The deviation is the sample's (divided by n − 1): the seeds stand for all those not run.

    >>> over_seeds([1.0, 2.0, 3.0])
    SeedSummary(mean=2.0, sd=1.0, n=3)
    """
    try:
        numbers = [float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise InputError(f"values: expected numbers, one for each seed, got {values!r}") from error
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InputError(f"values: expected at least one finite number, got {numbers}")
    sd = statistics.stdev(numbers) if len(numbers) > 1 else None
    return SeedSummary(mean=statistics.fmean(numbers), sd=sd, n=len(numbers))
