"""Elastic transform: a random affine map, then a smooth random displacement (Simard et al., ICDAR 2003)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from steep.corruptions.filters import gaussian, gaussian_weights, levels, planes
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream


def elastic_transform(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Draws: uniform (3, 2), then uniform (2, H, W) for dx and dy."""
    height, width = images.shape[1:3]
    side = min(height, width)
    alpha, sigma, jitter = (side * v for v in values)
    x = planes(images)
    x = _warp_affine(x, stream.between(-1, 1, 3, 2).mul_(jitter))
    if alpha == 0:
        return levels(x)
    field = displacement(stream.between(-1, 1, 2, height, width), sigma).mul_(alpha)
    row = field[:, 1] + torch.arange(height, device=x.device, dtype=torch.float32)[:, None]
    column = field[:, 0] + torch.arange(width, device=x.device, dtype=torch.float32)
    top, left = row.floor(), column.floor()
    return levels(_bilinear(x, top.to(torch.int32), left.to(torch.int32), row - top, column - left, repeat_edge=True))


def displacement(noise: Tensor, sigma: float) -> Tensor:
    """Smooth noise (n, 2, H, W) with a Gaussian cut at 3 sigma, edges mirrored; float32.

    Where the kernel is not much narrower than the picture, as two products with the filter's matrix. They run in
    float64: whatever the order of summation, the float32 result is the same.
    """
    if 8 * len(gaussian_weights(sigma, truncate=3.0)) < min(noise.shape[2:]):
        return gaussian(noise, sigma, truncate=3.0, border="symmetric")
    rows = _filter_matrix(noise.shape[2], sigma, noise.device)
    columns = _filter_matrix(noise.shape[3], sigma, noise.device)
    smooth = noise.to(torch.float64) @ columns.T
    return (smooth.transpose(2, 3) @ rows.T).transpose(2, 3).to(torch.float32).contiguous()


@lru_cache(maxsize=64)
def _filter_matrix(size: int, sigma: float, device: torch.device) -> Tensor:
    """Return the (size, size) float64 matrix of the Gaussian filter with its mirrored edges."""
    weights = np.array(gaussian_weights(sigma, truncate=3.0))
    source = np.pad(np.arange(size), len(weights) // 2, mode="symmetric")
    matrix = np.zeros((size, size))
    np.add.at(matrix, (np.arange(size)[:, None], sliding_window_view(source, len(weights))), weights)
    return torch.from_numpy(matrix).to(device)


def _warp_affine(x: Tensor, moves: Tensor) -> Tensor:
    """Apply to planes (n, C, H, W) the affine map that moves three reference points by (n, 3, 2) pixels.

    As OpenCV's warpAffine does: bilinear, positions quantised to 1/32 pixel, mirrored at the border.
    """
    height, width = x.shape[2:]
    inverse = affine_inverse(height, width, moves)  # (n, 2, 3)
    across = torch.arange(width, device=x.device, dtype=torch.float64)
    down = torch.arange(height, device=x.device, dtype=torch.float64)
    # OpenCV adds up two numbers rounded to 1/1024, half a 1/32 pixel to round, and drops the low bits.
    by_column = inverse[:, :, :1] * across  # (n, 2, W)
    by_row = inverse[:, :, 1:2] * down + inverse[:, :, 2:]  # (n, 2, H)
    # A map that folds the picture nearly flat reaches very far.
    by_column, by_row = ((p * 1024).round().clamp(-(1 << 29), 1 << 29).to(torch.int32) for p in (by_column, by_row))
    place = (by_row[:, :, :, None] + 16 + by_column[:, :, None]) >> 5  # (n, 2, H, W) in 1/32 pixel
    whole = place >> 5
    share = (place & 31).to(torch.float32).mul_(1 / 32)
    return _bilinear(x, whole[:, 1], whole[:, 0], share[:, 1], share[:, 0], repeat_edge=False)


def affine_inverse(height: int, width: int, moves: Tensor) -> Tensor:
    """Return the maps from moved to unmoved points (x, y): (n, 2, 3) float64, for moves (n, 3, 2)."""
    x, y, reach = width // 2, height // 2, min(height, width) // 3
    points = [[x + reach, y + reach], [x + reach, y - reach], [x - reach, y - reach]]
    source = torch.tensor(points, dtype=torch.float32, device=moves.device)
    target = (source + moves).to(torch.float64)  # (n, 3, 2), rounded to float32 as in the original
    source = source.to(torch.float64)
    # Two edges from the middle point span the plane: solve with Cramer's rule for each image.
    (ax, ay), (bx, by) = (target[:, 0] - target[:, 1]).unbind(1), (target[:, 2] - target[:, 1]).unbind(1)
    scale = 1 / (ax * by - bx * ay)
    edge = torch.stack([by, -bx, -ay, ax], 1).mul_(scale[:, None]).view(-1, 2, 2)  # inverse of [a b]
    p, q = source[0] - source[1], source[2] - source[1]
    linear = p[:, None] * edge[:, :1] + q[:, None] * edge[:, 1:]  # (n, 2, 2)
    offset = source[1] - (linear * target[:, 1, None]).sum(2)
    return torch.cat([linear, offset[:, :, None]], 2)


def _bilinear(x: Tensor, top: Tensor, left: Tensor, down: Tensor, right: Tensor, *, repeat_edge: bool) -> Tensor:
    """Sample planes (n, C, H, W) between the pixels (top, left), int32 (n, H, W), and their successors."""
    n, channels, height, width = x.shape
    plane = height * width
    start = torch.arange(n, device=x.device, dtype=torch.int32)[:, None, None] * (channels * plane)
    rows = [_fold(top + i, height, repeat_edge).mul_(width).add_(start) for i in (0, 1)]
    columns = [_fold(left + i, width, repeat_edge) for i in (0, 1)]
    corners = [(row + column).view(-1) for row in rows for column in columns]
    flat, out = x.view(-1), torch.empty_like(x)
    for channel in range(channels):
        a, b, c, d = (flat[channel * plane :].index_select(0, corner).view(top.shape) for corner in corners)
        # a + t (b - a): where the four agree, so does the result, to the last bit.
        upper = b.sub_(a).mul_(right).add_(a)
        lower = d.sub_(c).mul_(right).add_(c)
        out[:, channel] = lower.sub_(upper).mul_(down).add_(upper)
    return out


def _fold(index: Tensor, size: int, repeat_edge: bool) -> Tensor:
    """Mirror int32 indices back into 0..size-1, from however far outside."""
    period = 2 * (size if repeat_edge else size - 1)
    index = index ^ (index >> 31) if repeat_edge else index.abs()  # the first is -1 - index where negative
    index = index.remainder_(period)
    return torch.minimum(index, period - (1 if repeat_edge else 0) - index)
