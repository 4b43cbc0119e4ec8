"""The four noises: every value of every pixel gets its own draw, wherever it sits."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from steep.corruptions.filters import truncated
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream


def gaussian_noise(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Add N(0, std²) to the unit-range image. Draws: normal (H, W, C)."""
    (std,) = values
    return truncated(stream.normal(*images.shape[1:]).mul_(255 * std).add_(images))


def shot_noise(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Replace each value by a Poisson count of that mean, in units of 1/photons. Draws: poisson (H, W, C)."""
    (photons,) = values
    counts = stream.poisson(images, photons)
    return _count_levels(photons, images.device).index_select(0, counts.view(-1)).view(counts.shape)


@lru_cache(maxsize=32)
def _count_levels(photons: float, device: torch.device) -> Tensor:
    """Return the level of every count. In float64 as the original, so exact ties fall to the same side."""
    counts = torch.arange(1 << 16, dtype=torch.float64, device="cpu")
    return ((counts / photons).clamp(max=1) * 255).to(torch.uint8).to(device)


def impulse_noise(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Set a fraction of the values to 255 or 0, equally often. Draws: uniform (H, W, C)."""
    (fraction,) = values
    u = stream.uniform(*images.shape[1:])
    kept, white = (where.view(torch.uint8).neg_() for where in (u >= fraction, u < fraction / 2))  # all bits or none
    return kept.bitwise_and_(images).bitwise_or_(white)


def speckle_noise(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Add x * N(0, std²). Draws: normal (H, W, C)."""
    (std,) = values
    x = images.to(torch.float32)
    return truncated(stream.normal(*images.shape[1:]).mul_(std).mul_(x).add_(x))
