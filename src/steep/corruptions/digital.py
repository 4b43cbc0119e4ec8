"""Brightness, contrast, saturation, pixelation and JPEG; none draws anything."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steep.corruptions.filters import levels, planes
from steep.corruptions.parameters import Values
from steep.corruptions.random import Stream


def brightness(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Raise V of HSV. With H and S kept that scales the three channels alike, so no hue is needed."""
    (added,) = values
    x = planes(images)
    value = x.amax(1, keepdim=True)
    raised = _raised(added, x.device).index_select(0, value.view(-1).to(torch.int32)).view(value.shape)
    # v' - (v - c) v'/v rather than c v'/v: the largest channel gets v' exactly. Black has no hue: all get v'.
    ratio = raised / value.clamp(min=1)
    return levels(raised - (value - x).mul_(ratio), nudge=0)


@lru_cache(maxsize=32)
def _raised(added: float, device: torch.device) -> Tensor:
    """Return V after the addition for each level, (256,) float32.

    In float64 and rounded towards zero: 0.2 * 255 = 51 is a whole level, and where the original's sum falls
    just below it and loses one, ours has to as well.
    """
    exact = np.clip(np.arange(256) / 255 + added, 0, 1) * 255
    near = exact.astype(np.float32)
    return torch.from_numpy(np.where(near > exact, np.nextafter(near, np.float32(0)), near)).to(device)


def saturate(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Scale and shift S of HSV. A grey pixel has hue 0: given saturation it turns red; grey pictures stay."""
    multiply, add = values
    if images.shape[3] == 1:
        return images.clone()
    x = planes(images)
    value, spread = x.amax(1, keepdim=True), x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    saturation = (spread / value.clamp(min=1)).mul_(multiply).add_(add).clamp_(0, 1)
    # A channel lies the share (v - c) / spread of the way from the largest to the smallest one.
    share = (value - x).div_(spread.clamp(min=1))
    colourless = spread == 0
    share[:, 1:].masked_fill_(colourless, 1)
    return levels(value - share.mul_(saturation).mul_(value))


def contrast(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Pull every value towards the mean of its channel."""
    (factor,) = values
    x = planes(images)
    # Sums of levels are whole numbers, exact in float64 in any order.
    mean = x.sum((2, 3), keepdim=True, dtype=torch.float64).div_(x.shape[2] * x.shape[3]).to(torch.float32)
    return levels(x.sub_(mean).mul_(factor).add_(mean))


def pixelate(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Shrink with a box filter, enlarge by repeating; rounded after each pass, as Pillow does."""
    (scale,) = values
    height, width = images.shape[1:3]
    small = _boxed(images, 2, max(int(width * scale), 1))
    small = _boxed(small, 1, max(int(height * scale), 1))
    rows, columns = _repeats(small.shape[1], height, images.device), _repeats(small.shape[2], width, images.device)
    return small.index_select(2, columns).index_select(1, rows)


def _boxed(images: Tensor, dim: int, size: int) -> Tensor:
    """Shrink one dimension of uint8 images to `size` with Pillow's box filter, bit for bit."""
    index, weight = _box(images.shape[dim], size, images.device)
    shape = [1, 1, 1, 1]
    shape[dim] = size
    total = torch.full((), 1 << 21, dtype=torch.int32, device=images.device)  # rounds to nearest
    for tap in range(index.shape[0]):
        total = total + images.index_select(dim, index[tap]).to(torch.int32) * weight[tap].view(shape)
    return (total >> 22).to(torch.uint8)


@lru_cache(maxsize=64)
def _box(size: int, small: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return source indices and 22-bit weights of a box filter, (taps, small) int64 and int32."""
    scale = size / small
    taps = int(np.ceil(scale / 2)) * 2 + 1
    index, weight = np.zeros((taps, small), np.int64), np.zeros((taps, small), np.int32)
    for out in range(small):
        centre = (out + 0.5) * scale
        low, high = max(int(centre - scale / 2 + 0.5), 0), min(int(centre + scale / 2 + 0.5), size)
        place = (np.arange(low, high) - centre + 0.5) / scale
        share = ((place > -0.5) & (place <= 0.5)).astype(np.float64)
        share /= share.sum()
        index[: high - low, out] = np.arange(low, high)
        weight[: high - low, out] = (share * (1 << 22) + 0.5).astype(np.int32)
    return torch.from_numpy(index).to(device), torch.from_numpy(weight).to(device)


@lru_cache(maxsize=64)
def _repeats(small: int, size: int, device: torch.device) -> Tensor:
    """Return which of `small` pixels each of `size` repeats: the one its centre falls into."""
    centre = (np.arange(size) + 0.5) * (small / size)
    return torch.from_numpy(np.minimum(centre.astype(np.int64), small - 1)).to(device)


def jpeg_compression(images: Tensor, stream: Stream, values: Values) -> Tensor:
    """Encode and decode with Pillow's JPEG at its default settings (chroma halved both ways)."""
    return torch.from_numpy(through_jpeg(images.cpu().numpy(), quality=int(values[0]))).to(images.device)


def through_jpeg(images: np.ndarray, **options: Any) -> np.ndarray:
    """Encode and decode uint8 images (n, H, W, C) with Pillow.

    Image by image on the host; threads were measured to slow it down, as most of it holds the interpreter.
    """
    from PIL import JpegImagePlugin

    out = np.empty_like(images)
    for i, image in enumerate(images):
        decoded = JpegImagePlugin.JpegImageFile(io.BytesIO(jpeg(image, **options)))
        out[i] = np.asarray(decoded).reshape(image.shape)
    return out


def jpeg(image: np.ndarray, **options: Any) -> bytes:
    """Encode one uint8 image (H, W, C) with Pillow."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(buffer, "JPEG", **options)
    return buffer.getvalue()
