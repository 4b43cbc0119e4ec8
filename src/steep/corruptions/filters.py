"""Planes, borders and filters shared by the corruptions.

Every weighted sum is a fixed sequence of separate multiplications and additions. A convolution or matrix
product may add up in another order for another batch size, thread count or device, and one unit in the last
place is enough to change a byte once the result is truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

Border: TypeAlias = Literal["edge", "reflect", "symmetric"]

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


def pad(x: Tensor, by: int, dims: Sequence[int], border: Border) -> Tensor:
    """Extend dimensions on both sides by copies of their own slices: the edge, or what mirrors, without it or with."""
    for dim in dims:
        last = x.shape[dim] - 1
        if border == "edge":
            first, final = (x.narrow(dim, index, 1).repeat_interleave(by, dim) for index in (0, last))
            x = torch.cat([first, x, final], dim)
        else:
            source = np.pad(np.arange(last + 1), by, mode=border).tolist()
            slices = [x.narrow(dim, index, 1) for index in source[:by] + source[last + 1 + by :]]
            x = torch.cat([*slices[:by], x, *slices[by:]], dim)
    return x


def gaussian_weights(sigma: float, truncate: float = 4.0) -> list[float]:
    """Return normalised weights of a Gaussian cut at `truncate` standard deviations; [1.0] for sigma 0."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return [1.0]
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-radius, radius + 1)]
    return [w / sum(weights) for w in weights]


def gaussian(x: Tensor, sigma: float, truncate: float = 4.0, border: Border = "edge") -> Tensor:
    """Blur the last two dimensions of x with a Gaussian, by default with the edge repeated outwards."""
    weights = gaussian_weights(sigma, truncate)
    radius = len(weights) // 2
    for dim in (-2, -1) if radius else ():
        size, padded = x.shape[dim], pad(x, radius, (dim,), border)
        x = padded.narrow(dim, radius, size) * weights[radius]
        for i in range(radius):  # symmetric: one product for both sides
            pair = padded.narrow(dim, i, size) + padded.narrow(dim, 2 * radius - i, size)
            x.add_(pair.mul_(weights[i]))
    return x


def correlate(x: Tensor, kernel: Sequence[Sequence[float]]) -> Tensor:
    """Correlate the last two dimensions of x, mirrored at the border, with a small square kernel of odd side."""
    height, width = x.shape[-2:]
    padded = pad(x, len(kernel) // 2, (-2, -1), "reflect")
    total = torch.zeros_like(x)
    for i, row in enumerate(kernel):
        for j, weight in enumerate(row):
            if weight != 0:
                total.add_(padded[..., i : i + height, j : j + width] * weight)
    return total


def correlate_disk(x: Tensor, kernel: Sequence[Sequence[float]]) -> Tensor:
    """Do the same for whole levels and a large kernel that is alike in all four directions and mostly flat.

    A row of such a kernel is a sum of a few centred boxes, and a box is the next smaller one and two columns more.
    """
    reach, height, width = len(kernel) // 2, *x.shape[-2:]
    padded = pad(x, reach, (-2, -1), "reflect")
    total, box = torch.zeros_like(x), padded.narrow(-1, reach, width).clone()
    for k in range(reach + 1):
        if k > 0:  # whole numbers: exact
            box.add_(padded.narrow(-1, reach - k, width)).add_(padded.narrow(-1, reach + k, width))
        for row in range(reach + 1):
            weight = kernel[reach + row][reach + k] - (kernel[reach + row][reach + k + 1] if k < reach else 0.0)
            if abs(weight) > 1e-8:
                rows = box.narrow(-2, reach + row, height)
                total.add_((rows + box.narrow(-2, reach - row, height) if row else rows) * weight)
    return total
