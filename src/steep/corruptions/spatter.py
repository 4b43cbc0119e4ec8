"""Spatter: water drops or mud on the lens.

The drops are shaped by a chain of classic image operations (Canny edges, distance transform, histogram equalisation),
written here for a whole batch at once with OpenCV's arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steep.corruptions.filters import correlate, gaussian, levels, pad, planes
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream

WATER = (175, 238, 238)
MUD = (63, 42, 20)
_SHARPEN = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))
_BOX = ((1.0, 1.0, 1.0),) * 3


def spatter(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Draws: normal (H, W)."""
    mean, std, sigma, threshold, strength, kind = values
    height, width, channels = images.shape[1:]
    liquid = gaussian(stream.normal(height, width).mul_(std).add_(mean), sigma)  # (n, H, W)
    liquid = liquid.masked_fill(liquid < threshold, 0)
    x = planes(images)
    if int(kind) == 0:
        mask = water_mask(liquid).mul_(strength)
        return levels(x.add_(mask[:, None] * _colour(WATER, channels, x.device)))
    mask = gaussian((liquid > threshold).to(torch.float32), strength)
    mask = mask.masked_fill(mask < 0.8, 0)[:, None]
    return levels(x.mul_(1 - mask).add_(mask * _colour(MUD, channels, x.device)))


def _colour(rgb: tuple[int, int, int], channels: int, device: torch.device) -> Tensor:
    """Return a colour as (C, 1, 1) levels; its luma for grey pictures."""
    if channels == 1:
        rgb_luma = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
        return torch.tensor([rgb_luma], device=device).view(1, 1, 1)
    return torch.tensor(rgb, dtype=torch.float32, device=device).view(3, 1, 1)


def water_mask(liquid: Tensor) -> Tensor:
    """Return how much light drops of this thickness (n, H, W) add, scaled to a maximum of 1 per image."""
    # The original casts to uint8 without clipping: where a drop is thicker than 1 it wraps around to thin.
    thickness = liquid.mul(255).floor_().remainder_(256)
    far = chamfer_distance(canny(thickness, 50, 150), 20)  # (n, H, W) int32 in 1/65536 pixel
    # All sums below are of whole numbers under 2**24, exact in float32 in any order.
    blurred = correlate(far.to(torch.float64), _BOX).div_(9 << 16).floor_()
    relief = correlate(equalize(blurred.to(torch.int64), 21).to(torch.float32), _SHARPEN).clamp_(0, 255)
    relief = correlate(relief, _BOX).div_(9).round_()
    mask = thickness.mul_(relief)
    largest = mask.amax((1, 2), keepdim=True)
    return mask.div_(largest.clamp(min=1))  # no drop at all: nothing added (the original divides 0 by 0)


def canny(x: Tensor, low: float, high: float) -> Tensor:
    """Return Canny edges of levels (n, H, W) as bool: 3x3 Sobel, |gx| + |gy|, hysteresis over 8 neighbours.

    Gradients repeat the edge pixel; magnitudes beyond the border count as 0.
    """
    height, width = x.shape[1:]
    p = pad(x, 1, (1, 2), "edge")
    across = p[:, :, 2:] - p[:, :, :-2]
    gx = (across[:, :-2] + across[:, 2:] + 2 * across[:, 1:-1]).to(torch.int64)
    down = p[:, 2:] - p[:, :-2]
    gy = (down[..., :-2] + down[..., 2:] + 2 * down[..., 1:-1]).to(torch.int64)
    size = gx.abs() + gy.abs()
    rim = torch.nn.functional.pad(size, (1, 1, 1, 1))

    def beside(dy: int, dx: int) -> Tensor:
        return rim[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    # Directions in fixed point: 13573 / 2**15 is the tangent of 22.5 degrees. The >= of the first two and the
    # > of the diagonals decide ties, and are OpenCV's.
    steep, flat = gy.abs() << 15, gx.abs() * 13573
    horizontal = steep < flat
    vertical = steep > flat + (gx.abs() << 16)
    along = (size > beside(0, -1)) & (size >= beside(0, 1))
    upright = (size > beside(-1, 0)) & (size >= beside(1, 0))
    falling = (size > beside(-1, -1)) & (size > beside(1, 1))
    rising = (size > beside(-1, 1)) & (size > beside(1, -1))
    slanted = torch.where((gx ^ gy) < 0, rising, falling)
    peak = torch.where(horizontal, along, torch.where(vertical, upright, slanted)) & (size > low)
    return _reach(peak & (size > high), peak)


def _reach(seed: Tensor, allowed: Tensor) -> Tensor:
    """Grow seed (n, H, W) over allowed pixels that touch it, corners included, until nothing changes."""
    reached, limit = seed.to(torch.float32)[:, None], allowed.to(torch.float32)[:, None]
    while True:
        before = reached
        for _ in range(8):  # asking a GPU whether it is done costs more than a few steps too many
            reached = torch.nn.functional.max_pool2d(reached, 3, 1, 1) * limit
        if bool((reached == before).all()):
            return reached[:, 0] > 0


def chamfer_distance(edges: Tensor, cap: int) -> Tensor:
    """Return the distance to the nearest edge (n, H, W) in 1/65536 pixel, int32, at most cap pixels.

    The 5x5 chamfer metric of OpenCV: steps of length 1, 1.4 (diagonal) and 2.1969 (knight's move), in two
    sweeps. Within a row the running dependence on the left neighbour is a running minimum.
    """
    straight, diagonal, knight = (round(length * 65536) for length in (1.0, 1.4, 2.1969))
    n, height, width = edges.shape
    infinite = 1 << 28
    distance = torch.where(edges, 0, infinite).to(torch.int32)
    ramp = torch.arange(width, device=edges.device, dtype=torch.int32) * straight
    steps = [(1, 1, diagonal), (1, 0, straight), (1, -1, diagonal)]
    steps += [(1, 2, knight), (1, -2, knight), (2, 1, knight), (2, -1, knight)]
    for _ in range(2):
        # Rows of the padded array: two above and two columns on each side that nothing is near to.
        field = torch.full((height + 2, n, width + 4), infinite, dtype=torch.int32, device=edges.device)
        for y in range(height):
            best = distance[:, y]
            for up, side, length in steps:
                best = torch.minimum(best, field[y + 2 - up, :, 2 + side : 2 + side + width] + length)
            field[y + 2, :, 2 : 2 + width] = (best - ramp).cummin(1).values + ramp
        # The second sweep is the same, turned by 180 degrees; after two the picture is upright again.
        distance = field[2:, :, 2:-2].permute(1, 0, 2).flip((1, 2))
    return distance.clamp(max=cap << 16)


def equalize(x: Tensor, count: int) -> Tensor:
    """Equalise the histogram of whole levels (n, H, W) in 0..count-1 to 0..255, as OpenCV does."""
    n, height, width = x.shape
    total = height * width
    flat = x.reshape(n, -1)
    histogram = torch.zeros(n, count, dtype=torch.int64, device=x.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    below = histogram.cumsum(1)
    # The lowest level present maps to 0 and does not count; a picture of one level stays what it is.
    lowest = torch.where(histogram > 0, torch.arange(count, device=x.device), count).amin(1, keepdim=True)
    first = histogram.gather(1, lowest)
    scale = 255.0 / (total - first).clamp(min=1).to(torch.float32)
    table = ((below - first).clamp(min=0).to(torch.float32) * scale).round_().clamp_(0, 255).to(torch.int64)
    table = torch.where(first == total, torch.arange(count, device=x.device), table)
    return table.gather(1, flat).view(x.shape)
