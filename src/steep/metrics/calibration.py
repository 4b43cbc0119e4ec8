"""Does the confidence of a classifier mean what it says? (Guo et al., ICML 2017)

Every function takes the logits of the whole set: an ECE averaged over batches is another, larger number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from steep.errors import InputError
from steep.metrics.inputs import check_predictions

# Largest float32 under 1. A saturated softmax gives exactly 1, the right edge of the last bin; just below, it is in it.
_UNDER_ONE = 1 - 2**-24


def expected_calibration_error(logits: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """ECE: gap between confidence and accuracy, averaged over equal-width bins by their share of the set.

    Args:
        logits: (N, K), the whole set at once.
        labels: (N,), classes 0 to K − 1.
        bins: number of equal-width bins on [0, 1].

    >>> logits = torch.tensor([[0.75, 0.25], [0.75, 0.25]]).log()
    >>> round(expected_calibration_error(logits, torch.tensor([0, 1])), 4)  # 75 % sure, 50 % right
    0.25
    """
    return reliability(logits, labels, bins=bins).ece


def maximum_calibration_error(logits: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """MCE: the largest gap between confidence and accuracy of any bin that holds something.

    >>> logits = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.05, 0.95]]).log()
    >>> round(maximum_calibration_error(logits, torch.tensor([0, 1, 1])), 4)
    0.25
    """
    return reliability(logits, labels, bins=bins).mce


def brier_score(logits: Tensor, labels: Tensor) -> float:
    """Mean over the set of Σ_k (p_k − 1[k = label])², all classes counted: 0 is perfect, 2 is the worst.

    >>> brier_score(torch.zeros(1, 2), torch.tensor([0]))  # (0.5 − 1)² + 0.5²
    0.5
    """
    logits, labels = check_predictions(logits, labels)
    probabilities = logits.softmax(dim=1)  # (N, K)
    gap = probabilities - F.one_hot(labels, logits.shape[1])
    return float(gap.square().sum(dim=1).mean())


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> float:
    """Mean of −log p(label), in nats.

    >>> round(negative_log_likelihood(torch.zeros(1, 10), torch.tensor([3])), 4)  # ln 10
    2.3026
    """
    return float(F.cross_entropy(*check_predictions(logits, labels)))


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """The bars of a reliability diagram, from confidence 0 to 1; an empty bin has 0 for both means.

    Bin i holds confidences from `edges[i]` up to but without `edges[i + 1]`; the last takes 1 as well.

    >>> bars = Reliability(edges=(0.0, 0.5, 1.0), counts=(0, 4), confidence=(0.0, 0.75), accuracy=(0.0, 0.5))
    >>> bars.ece, bars.mce
    (0.25, 0.25)
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]

    @property
    def gaps(self) -> tuple[float, ...]:
        """|accuracy − confidence| of each bin."""
        return tuple(abs(a - c) for a, c in zip(self.accuracy, self.confidence, strict=True))

    @property
    def ece(self) -> float:
        """Expected calibration error of these bins, summed in float64."""
        return sum(n * gap for n, gap in zip(self.counts, self.gaps, strict=True)) / sum(self.counts)

    @property
    def mce(self) -> float:
        """Maximum calibration error of these bins."""
        return max(self.gaps)


def reliability(logits: Tensor, labels: Tensor, *, bins: int = 15) -> Reliability:
    """Sort the whole set into equal-width bins of confidence, as the two calibration errors do.

    >>> logits = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.1, 0.9]]).log()
    >>> bars = reliability(logits, torch.tensor([0, 1, 1]), bins=5)
    >>> bars.counts, bars.accuracy
    ((0, 0, 0, 2, 1), (0.0, 0.0, 0.0, 0.5, 1.0))
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise InputError(f"bins: expected a whole number of at least 1, got {bins!r}")
    logits, labels = check_predictions(logits, labels)
    confidence, predicted = logits.softmax(dim=1).float().clamp(max=_UNDER_ONE).max(dim=1)  # (N,), (N,)
    edges = torch.linspace(0, 1, bins + 1, device=confidence.device)
    index = torch.bucketize(confidence, edges, right=True) - 1  # (N,), 0 to bins − 1
    counts = index.bincount(minlength=bins)
    # Sums in float64: in float32 a bin of 10⁵ confidences near 1 loses their fourth digit.
    share = counts.clamp(min=1).double()
    mean = index.bincount(confidence.double(), minlength=bins) / share
    right = index.bincount((predicted == labels).double(), minlength=bins) / share
    return Reliability(
        edges=tuple(i / bins for i in range(bins + 1)),
        counts=tuple(counts.tolist()),
        confidence=tuple(mean.tolist()),
        accuracy=tuple(right.tolist()),
    )
