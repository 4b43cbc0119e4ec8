"""Planes, borders and filters shared by the corruptions.

Every weighted sum is a fixed sequence of separate multiplications and additions. A convolution or matrix
product may add up in another order for another batch size, thread count or device, and one unit in the last
place is enough to change a byte once the result is truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Levels are truncated to uint8, as in the original. A sum that is a whole number up to float32 rounding must
# not lose a level by that, so this much is added first: far above the rounding, far below what can be seen.
NUDGE = 2.0**-12


def planes(images: Tensor) -> Tensor:
    """Turn uint8 images (n, H, W, C) into float32 planes (n, C, H, W) of the same levels 0..255."""
    return images.permute(0, 3, 1, 2).contiguous().to(torch.float32)


def levels(x: Tensor, nudge: float = NUDGE) -> Tensor:
    """Clip planes (n, C, H, W) to 0..255 and truncate them to uint8 images (n, H, W, C). Overwrites x."""
    return truncated(x, nudge).permute(0, 2, 3, 1).contiguous()


def truncated(x: Tensor, nudge: float = NUDGE) -> Tensor:
    """Clip to 0..255 and truncate to uint8, in whatever shape. Overwrites x."""
    return x.add_(nudge).clamp_(0, 255).to(torch.uint8)


def reflect(index: Tensor, size: int, *, repeat_edge: bool) -> Tensor:
    """Fold any whole-numbered index back into 0..size-1 at mirrors on or beyond the edge pixels."""
    period = 2 * size if repeat_edge else max(2 * (size - 1), 1)
    folded = index.remainder(period)
    return torch.minimum(folded, (period - 1 if repeat_edge else period) - folded)


def pad(x: Tensor, before: int, after: int, dim: int, border: str) -> Tensor:
    """Extend one dimension by copies of its own slices.

    border: "edge" repeats the edge pixel, "mirror" mirrors without repeating it, "mirror_edge" with.
    """
    size = x.shape[dim]
    if border == "edge":
        sizes = list(x.shape)
        sizes[dim] = before
        first = x.narrow(dim, 0, 1).expand(sizes)
        sizes[dim] = after
        return torch.cat([first, x, x.narrow(dim, size - 1, 1).expand(sizes)], dim)
    outside = torch.cat([torch.arange(*span, device="cpu") for span in ((-before, 0), (size, size + after))])
    source = reflect(outside, size, repeat_edge=border == "mirror_edge").tolist()
    slices = [x.narrow(dim, i, 1) for i in source]
    return torch.cat([*slices[:before], x, *slices[before:]], dim)


def gaussian_weights(sigma: float, truncate: float = 4.0) -> list[float]:
    """Return normalised weights of a Gaussian cut at `truncate` standard deviations; [1.0] for sigma 0.

    >>> gaussian_weights(0.05)
    [1.0]
    >>> len(gaussian_weights(1))
    9
    """
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return [1.0]
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-radius, radius + 1)]
    return [w / sum(weights) for w in weights]


def correlate_axis(x: Tensor, weights: Sequence[float], dim: int, border: str) -> Tensor:
    """Correlate x with a kernel of odd length along one dimension."""
    if len(weights) == 1:
        return x * weights[0] if weights[0] != 1 else x
    size, radius = x.shape[dim], len(weights) // 2
    padded = pad(x, radius, radius, dim, border)
    total = padded.narrow(dim, radius, size) * weights[radius]
    for i in range(radius):
        if weights[i] == weights[-1 - i]:  # symmetric: one product for both sides
            pair = padded.narrow(dim, i, size) + padded.narrow(dim, 2 * radius - i, size)
            total.add_(pair.mul_(weights[i]))
        else:
            total.add_(padded.narrow(dim, i, size) * weights[i])
            total.add_(padded.narrow(dim, 2 * radius - i, size) * weights[-1 - i])
    return total


def gaussian(x: Tensor, sigma: float, border: str = "edge", truncate: float = 4.0) -> Tensor:
    """Blur the last two dimensions of x with a Gaussian."""
    weights = gaussian_weights(sigma, truncate)
    return correlate_axis(correlate_axis(x, weights, -2, border), weights, -1, border)


def correlate(x: Tensor, kernel: Sequence[Sequence[float]], border: str) -> Tensor:
    """Correlate the last two dimensions of x with a small kernel of odd sides; zero weights cost nothing."""
    height, width = x.shape[-2:]
    up, left = len(kernel) // 2, len(kernel[0]) // 2
    padded = pad(pad(x, up, up, -2, border), left, left, -1, border)
    total = torch.zeros_like(x)
    for i, row in enumerate(kernel):
        for j, weight in enumerate(row):
            if weight != 0:
                total.add_(padded[..., i : i + height, j : j + width] * weight)
    return total
