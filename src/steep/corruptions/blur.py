"""The five blurs: defocus, glass, motion, zoom and Gaussian."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from steep.corruptions.filters import correlate, correlate_disk, gaussian, levels, pad, planes, truncated
from steep.corruptions.parameters import LARGE, Values
from steep.corruptions.random import Stream

# ImageMagick rounds to 16 bits before the level is truncated: floor(round(257 s) / 257).
_ROUNDED = 0.5 / 257


def gaussian_blur(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Blur with a Gaussian, edge pixels repeated outwards. Draws: none."""
    (sigma,) = values
    return levels(gaussian(planes(images), sigma))


def defocus_blur(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Correlate with a disk whose edge is smoothed, mirrored at the border. Draws: none."""
    kernel = disk(*values)
    return levels((correlate if len(kernel) <= 7 else correlate_disk)(planes(images), kernel))


@lru_cache(maxsize=64)
def disk(radius: float, alias_sigma: float) -> list[list[float]]:
    """Return the defocus kernel: a uniform disk smoothed by a 3x3 Gaussian (5x5 from radius 9 on).

    The smoothing mirrors at the rim of the original's grid, so from radius 8 on the weights add up to more than 1.
    """
    reach = max(8, math.ceil(radius))
    offsets = np.arange(-reach, reach + 1)
    inside = (offsets[:, None] ** 2 + offsets[None] ** 2 <= radius**2).astype(np.float64)
    half = 1 if radius <= 8 else 2
    bell = np.exp(-0.5 * (np.arange(-half, half + 1) / alias_sigma) ** 2)
    bell /= bell.sum()
    kernel = np.pad(inside / inside.sum(), half, mode="reflect")
    for axis in (0, 1):
        kernel = sum(w * np.roll(kernel, k - half, axis) for k, w in enumerate(bell))
    kernel = kernel[half:-half, half:-half]
    # Weights that cannot move a level even together are dropped, and empty rims with them.
    kernel[kernel < 1e-7] = 0
    used = np.flatnonzero(kernel.any(0))
    kernel = kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
    return [[float(w) for w in row] for row in (kernel / kernel.sum() if radius < 8 else kernel)]


def glass_blur(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Blur, let pixels take the value of a near one, blur again. Draws per pass: integers (2, H, W).

    A pass visits the pixels from the last to the first and *copies* one of its neighbours into each: the
    original means to swap two numpy views, which in effect copies one way. A neighbour that was visited
    earlier in the pass has been overwritten by then, which `copy_sources` resolves without a loop.
    """
    sigma, shift, iterations = values[0], int(values[1]), int(values[2])
    n, height, width, channels = images.shape
    x = levels(gaussian(planes(images), sigma))
    packed = torch.zeros(n, height, width, 4, dtype=torch.uint8, device=images.device)
    packed[..., :channels] = x
    pixels = packed.view(torch.int32).view(n, height * width)  # all channels of a pixel in one number
    for _ in range(iterations):
        moves = stream.integers(-shift, shift, 2, height, width)
        pixels = pixels.gather(1, copy_sources(moves[:, 0], moves[:, 1], shift))
    x = pixels.view(torch.uint8).view(n, height, width, 4)[..., :channels]
    return levels(gaussian(planes(x), sigma))


def copy_sources(dx: Tensor, dy: Tensor, shift: int) -> Tensor:
    """Find for each pixel whose original value it holds after one pass of copies, (n, H * W) int64.

    dx, dy: moves (n, H, W) in [-shift, shift). Rows run from H-shift down to shift+1 and columns likewise, the
    row being the outer loop; pixels outside that range are never written.
    """
    n, height, width = dx.shape
    row = torch.arange(height, device=dx.device)[:, None]
    column = torch.arange(width, device=dx.device)[None]
    # The first row visited is H - shift, which for shift 1 is the last one.
    visited = (row > shift) & (row <= height - shift) & (column > shift) & (column <= width - shift)
    here = (row * width + column).expand(n, -1, -1)
    source = torch.where(visited, (row + dy) * width + (column + dx), here)
    if shift == 1:  # moves go up or left, to pixels not yet visited: they still hold their own value
        return source.view(n, -1)
    # A source later in reading order was visited before: it holds what *its* source held then. Following such
    # links needs as many steps as the longest chain; doubling the links needs the logarithm of it.
    here, source = here.reshape(n, -1), source.view(n, -1)
    follow = (source > here) & visited.view(1, -1).expand(n, -1).gather(1, source)
    link = torch.where(follow, source, here)
    while not torch.equal(further := link.gather(1, link), link):
        link = further
    # `link` is now the last pixel of the chain, and its own source was not yet overwritten when it was read.
    return source.gather(1, link)


def motion_blur(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Blur along a line of random direction. Draws: uniform (), the angle in U(-45°, 45°)."""
    radius, sigma = values
    angle = stream.between(-45, 45)
    blurred = drag(images.permute(0, 3, 1, 2).contiguous(), angle, radius, sigma)
    return blurred.permute(0, 2, 3, 1).contiguous()


def drag(x: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """Motion-blur uint8 planes (n, C, H, W) at angles (n,) in degrees, the way ImageMagick does.

    One-sided: tap i of 2 * ceil(radius) + 1 has weight exp(-i²/2 sigma²) and reads the pixel i steps along the
    line, rounded to whole pixels, clamped to the image.
    """
    n, _, height, width = x.shape
    taps = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(2 * math.ceil(radius) + 1)]
    taps = [w / sum(taps) for w in taps]
    while taps[-1] < 1e-7:  # cannot move a level
        taps.pop()
    radians = torch.deg2rad(angle.to(torch.float64))
    step = torch.arange(len(taps), dtype=torch.float64, device=x.device)[:, None]
    dx = torch.ceil(step * torch.cos(radians) - 0.5).to(torch.int64)  # (taps, n)
    dy = torch.ceil(step * torch.sin(radians) - 0.5).to(torch.int64)
    # Pad once by the longest reach, then each tap is a window of the padded image: offsets differ by image,
    # and indexing windows copies whole rows where indexing pixels would look up every one.
    reach = len(taps) - 1
    padded = pad(x, reach, (2, 3), "edge")
    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    if x.device.type == "cpu" and min(height, width) >= LARGE:  # few images: a slice for each of them and each tap
        for image, out, *offsets in zip(padded.to(torch.float32), total, dy.T.tolist(), dx.T.tolist(), strict=True):
            for weight, down, right in zip(taps, *offsets, strict=True):
                out.add_(image[:, reach + down :, reach + right :][:, :height, :width] * weight)
        return truncated(total, _ROUNDED)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1).permute(0, 2, 3, 1, 4, 5)
    image = torch.arange(n, device=x.device)
    for i, weight in enumerate(taps):
        total.add_(windows[image, dy[i] + reach, dx[i] + reach].to(torch.float32).mul_(weight))
    return truncated(total, _ROUNDED)


def zoom_matrix(size: int, factor: float) -> np.ndarray:
    """Return the (size, size) float64 matrix of one axis of the clipped zoom.

    The centred ceil(size / factor) pixels are resized linearly, end points on end points, to
    round(that * factor) pixels, of which the middle `size` are kept.
    """
    inner = math.ceil(size / factor)
    top = (size - inner) // 2
    zoomed = round(inner * factor)
    position = np.arange(size) + (zoomed - size) // 2
    source = position * ((inner - 1) / (zoomed - 1)) if zoomed > 1 else np.zeros(size)
    low = np.clip(np.floor(source).astype(int), 0, max(inner - 2, 0))
    share = source - low
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    matrix[rows, top + low] += 1 - share
    matrix[rows, top + np.minimum(low + 1, inner - 1)] += share
    return matrix


@lru_cache(maxsize=256)
def _axis(size: int, factor: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return what one axis of the clipped zoom reads: (first index, second index, weight of the second)."""
    matrix = torch.from_numpy(zoom_matrix(size, factor))
    first = (matrix > 0).to(torch.int64).argmax(1)
    second = (first + 1).clamp(max=size - 1)
    share = torch.where(second > first, matrix.gather(1, second[:, None])[:, 0], 0.0)
    return first.to(device), second.to(device), share.to(torch.float32)[:, None].to(device)


def zoomed(x: Tensor, factor: float) -> Tensor:
    """Zoom (n, …, H, W) into its centre, same size out."""
    if factor == 1:
        return x
    for _ in range(2):  # the columns as rows, which are copied whole
        first, second, share = _axis(x.shape[-2], factor, x.device)
        near, far = x.index_select(-2, first), x.index_select(-2, second)
        x = far.sub_(near).mul_(share).add_(near).transpose(-2, -1).contiguous()
    return x


Patch = tuple[int, int, int, int, int, int, Tensor]


@lru_cache(maxsize=16)
def _zoom_patches(stop: float, step: float, height: int, width: int, device: torch.device) -> list[Patch]:
    """Write the mean over all zooms as weights by offset: (dy, dx, top, bottom, left, right, weights).

    A pixel reads only from its own neighbourhood, so for each offset the weights are zero outside one
    rectangle; adding up these rectangles is far less work than one resize per factor.
    """
    factors = np.arange(1, stop, step).tolist()  # with its float errors, which decide the last one
    bands = []  # per axis: offset -> (factors, size) weights of that diagonal
    for size in (height, width):
        matrices = np.stack([np.eye(size), *(zoom_matrix(size, z) for z in factors)])  # the image counts too
        band = {}
        for offset in range(1 - size, size):
            diagonal = np.zeros((len(matrices), size))
            inside = slice(max(-offset, 0), size - max(offset, 0))
            diagonal[:, inside] = np.diagonal(matrices, offset, 1, 2)
            if diagonal.any():
                band[offset] = diagonal
        bands.append(band)
    patches = []
    for dy, by_row in bands[0].items():
        for dx, by_column in bands[1].items():
            weights = by_row.T @ by_column / len(by_row)  # (H, W)
            rows, columns = np.flatnonzero(weights.any(1)), np.flatnonzero(weights.any(0))
            if len(rows):
                top, bottom = int(rows[0]), int(rows[-1]) + 1
                left, right = int(columns[0]), int(columns[-1]) + 1
                part = torch.from_numpy(weights[top:bottom, left:right].astype(np.float32)).to(device)
                patches.append((dy, dx, top, bottom, left, right, part))
    return patches


def zoom_blur(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Average the image and its zooms towards the centre. Draws: none."""
    x = planes(images)
    if min(images.shape[1:3]) >= LARGE:  # too many offsets
        factors = np.arange(1, *values).tolist()
        total = x.clone()
        for factor in factors:
            total.add_(zoomed(x, factor))
        return levels(total.mul_(1 / (len(factors) + 1)))
    total = torch.zeros_like(x)
    for dy, dx, top, bottom, left, right, weights in _zoom_patches(*values, *images.shape[1:3], images.device):
        seen = x[..., top + dy : bottom + dy, left + dx : right + dx]
        total[..., top:bottom, left:right].add_(seen * weights)
    return levels(total)
