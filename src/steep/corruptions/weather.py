"""Snow and fog."""

from __future__ import annotations

import torch
from torch import Tensor

from steep.corruptions.blur import drag, zoomed
from steep.corruptions.filters import levels, planes
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream

LUMA = (0.299, 0.587, 0.114)


def grey(x: Tensor) -> Tensor:
    """Return the luma of planes (n, C, H, W) as (n, 1, H, W); a grey picture is its own."""
    if x.shape[1] == 1:
        return x
    red, green, blue = (x[:, c : c + 1] * weight for c, weight in enumerate(LUMA))
    return red.add_(green).add_(blue)


def fog(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Add a cloud and darken back into range. Draws: those of `plasma`.

    The cloud lives on a torus whose side is a power of two; for other sizes it is cut from the next larger.
    """
    strength, decay = values
    height, width = images.shape[1:3]
    side = 1 << (max(height, width) - 1).bit_length()
    cloud = plasma(stream, side, decay)[:, None, :height, :width]
    x = planes(images)
    brightest = x.amax((1, 2, 3), keepdim=True)
    full = 255 * strength
    return levels(x.add_(cloud * full).mul_(brightest / (brightest + full)))


def plasma(stream: Stream, side: int, decay: float) -> Tensor:
    """Return clouds in [0, 1], (n, side, side) float32; side is a power of two.

    Draws per level of k x k squares: uniform (k, k) for their centres, for the middles of their top edges and
    for the middles of their left edges. The amplitude is wibble², as in the original, which multiplies a
    uniform number of that range by the range once more.
    """
    corners = torch.zeros(len(stream), 1, 1, device=stream.device)
    drawn = stream.between(-1, 1, side * side - 1)  # all levels at once: most of them are small
    wibble = 100.0
    while (count := corners.shape[1]) < side:
        level = drawn[:, count * count - 1 : 4 * count * count - 1]  # 3, 12, 48, … of them
        noise = level.view(-1, 3, count, count) * (wibble * wibble)
        squares = corners + corners.roll(-1, 1)
        squares = squares.add_(squares.roll(-1, 2)).mul_(0.25).add_(noise[:, 0])
        top = (squares + squares.roll(1, 1)).add_(corners + corners.roll(-1, 2)).mul_(0.25).add_(noise[:, 1])
        left = (squares + squares.roll(1, 2)).add_(corners + corners.roll(-1, 1)).mul_(0.25).add_(noise[:, 2])
        finer = torch.empty(len(stream), 2 * count, 2 * count, device=stream.device)
        finer[:, ::2, ::2] = corners
        finer[:, 1::2, 1::2] = squares
        finer[:, ::2, 1::2] = top
        finer[:, 1::2, ::2] = left
        corners = finer
        wibble /= decay
    corners = corners - corners.amin((1, 2), keepdim=True)
    return corners / corners.amax((1, 2), keepdim=True)


def snow(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Whiten the picture and add flakes dragged by the wind. Draws: normal (H, W), then uniform (): the angle."""
    mean, std, zoom, threshold, radius, sigma, mix = values
    height, width = images.shape[1:3]
    layer = stream.normal(height, width).mul_(std).add_(mean)
    layer = zoomed(layer, zoom)
    layer = layer.masked_fill_(layer < threshold, 0).clamp_(0, 1).mul_(255).to(torch.uint8)
    angle = stream.between(-135, -45)
    layer = drag(layer[:, None], angle, radius, sigma).to(torch.float32)
    x = planes(images)
    white = torch.maximum(x, grey(x) * 1.5 + 127.5)
    return levels(x.mul_(mix).add_(white.mul_(1 - mix)).add_(layer).add_(layer.flip((2, 3))))
