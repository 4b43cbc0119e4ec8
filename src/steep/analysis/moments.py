"""How far samples are from a set of images, in two numbers: of their means and of their covariances."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

SIDE = 32
"""Larger images are averaged down to this many pixels a side: a covariance has pixels × pixels entries."""

MOST = 2_000
"""Images a covariance is estimated from; more cost minutes and change its third digit."""


@dataclass(frozen=True)
class Moments:
    """Mean (D,) and covariance (D, D) of images, their values in [0, 1], D pixels and channels."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, images: Tensor) -> Moments:
        """Estimate both from images (n, C, H, W); values outside [0, 1] are shown, and count, as the nearest inside."""
        flat = _small(images[:MOST].detach().float().clamp(0, 1)).flatten(1)  # (n, D)
        mean = flat.mean(dim=0)
        around = flat - mean
        return cls(mean, around.T @ around / max(1, len(flat) - 1))

    def distance(self, images: Tensor) -> dict[str, float]:
        """Root mean square, over pixels and over pairs of pixels, of the difference in mean and in covariance.

        >>> import torch
        >>> dark, bright = torch.zeros(4, 1, 2, 2), torch.ones(4, 1, 2, 2)
        >>> Moments.of(dark).distance(bright)
        {'mean_distance': 1.0, 'covariance_distance': 0.0}
        """
        other = Moments.of(images)
        return {
            "mean_distance": _rms(self.mean - other.mean),
            "covariance_distance": _rms(self.covariance - other.covariance),
        }


def _small(images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    if max(height, width) <= SIDE:
        return images
    return F.adaptive_avg_pool2d(images, (min(height, SIDE), min(width, SIDE)))


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
