"""Diamond-square clouds on a torus, one per image, every level drawn at once for the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from steep.corruptions.random import Stream


def plasma(stream: Stream, side: int, decay: float) -> Tensor:
    """Return clouds in [0, 1], (n, side, side) float32; side is a power of two.

    Draws per level of k x k squares: uniform (k, k) for their centres, for the middles of their top edges and
    for the middles of their left edges. The amplitude is wibble², as in the original, which multiplies a
    uniform number of that range by the range once more.

    >>> cloud = plasma(Stream(0, "fog", 1, 0, 3), 32, 2.0)
    >>> tuple(cloud.shape), float(cloud.min()), float(cloud.max())
    ((3, 32, 32), 0.0, 1.0)
    """
    corners = torch.zeros(len(stream), 1, 1, device=stream.device)
    wibble = 100.0
    while (count := corners.shape[1]) < side:
        amplitude = wibble * wibble

        def wander(total: Tensor, count: int = count, amplitude: float = amplitude) -> Tensor:
            noise = stream.between(-1, 1, count, count).mul_(amplitude)
            return total.mul_(0.25).add_(noise)

        squares = corners + corners.roll(-1, 1)
        squares = wander(squares.add_(squares.roll(-1, 2)))
        top = wander((squares + squares.roll(1, 1)).add_(corners + corners.roll(-1, 2)))
        left = wander((squares + squares.roll(1, 2)).add_(corners + corners.roll(-1, 1)))
        finer = torch.empty(len(stream), 2 * count, 2 * count, device=stream.device)
        finer[:, ::2, ::2] = corners
        finer[:, 1::2, 1::2] = squares
        finer[:, ::2, 1::2] = top
        finer[:, 1::2, ::2] = left
        corners = finer
        wibble /= decay
    corners = corners - corners.amin((1, 2), keepdim=True)
    return corners / corners.amax((1, 2), keepdim=True)
