"""corrupt(): check the images, cut them into chunks, hand each chunk to its corruption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from steep.corruptions import blur, digital, elastic, frost, noise, spatter, weather
from steep.corruptions.parameters import CORRUPTIONS, Values, lookup, whole_number
from steep.corruptions.random import Stream
from steep.errors import InputError

Images = TypeVar("Images", np.ndarray, Tensor)
Corruption = Callable[[Tensor, Stream, Values], Tensor]

# Each bears the name of its corruption, and takes and returns uint8 images (n, H, W, C).
FUNCTIONS: dict[str, Corruption] = {
    name: getattr(module, name)
    for module in (blur, digital, elastic, frost, noise, spatter, weather)
    for name in CORRUPTIONS
    if hasattr(module, name)
}

SMALLEST = 8
_FLOATS = ("float16", "bfloat16", "float32", "float64")
# Pixels worked on at a time: what stays in a CPU's cache, and what keeps a GPU busy.
CPU_PIXELS = 1 << 17
GPU_PIXELS = 1 << 22


def corrupt(
    images: Images, name: str, severity: int = 5, seed: int = 0, *, first: int = 0, table: str | None = None
) -> Images:
    """Corrupt images the way CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C do.

    Args:
        images: uint8, (N, H, W, 3), or grey as (N, H, W) or (N, H, W, 1); a numpy array or a torch tensor on
            any device; sides from 8 pixels on, square or not. A 3-D array with 3 as its first length could be
            one channels-first picture and is refused: three grey ones need their channel, (3, H, W, 1).
            Batches as models take them, (N, C, H, W) or floats in [0, 1], do too; floats are rounded to 8 bits.
        name: one of `CORRUPTIONS`.
        severity: 1 (mild) to 5.
        seed: of the random draws. Image i of the set is drawn from (seed, name, severity, first + i) and from
            nothing else: not from the batch it comes in, nor the device or the number of threads. Severity is
            part of it, so the severities of one image are drawn independently, as in the published sets.
        first: the index of images[0] in its set, for sets that are corrupted piece by piece.
        table: "cifar", "tiny-imagenet", "imagenet" or "scaled" parameters; by default the published ones of the
            first two at 32x32 and 64x64, those of ImageNet-C from a shorter side of 128 on, and an approximation
            scaled from the first two at any other size.

    Returns:
        New images of the same type, dtype, shape and device.

    >>> import numpy as np
    >>> clean = np.full((2, 32, 32, 3), 128, np.uint8)
    >>> corrupt(clean, "contrast", severity=3).shape
    (2, 32, 32, 3)
    >>> noisy = corrupt(clean, "gaussian_noise", severity=5, seed=1)
    >>> bool((corrupt(clean[1:], "gaussian_noise", 5, seed=1, first=1) == noisy[1:]).all())
    True
    """
    check(images)
    first_channels = _channels_first(images.shape)
    height, width = images.shape[2:] if first_channels else images.shape[1:3]
    values = lookup(name, severity, height, width, table)
    severity, seed, first = int(severity), whole_number("seed", seed), whole_number("first", first)
    if first < 0:
        raise InputError(f"first: expected an index from 0 on, got {first}")
    function = FUNCTIONS[name]
    like = images if isinstance(images, Tensor) else torch.from_numpy(np.empty(0, images.dtype))
    device, bytewise = like.device, like.dtype == torch.uint8
    chunk = max((CPU_PIXELS if device.type == "cpu" else GPU_PIXELS) // (height * width), 1)
    out = torch.empty(tuple(images.shape), dtype=like.dtype, device=device)
    most = torch.full((), 255.0, dtype=torch.float64 if like.dtype == torch.float64 else torch.float32, device=device)
    with torch.no_grad():
        for start in range(0, len(images), chunk):
            cut = images[start : start + chunk]  # a numpy array is copied, as some are read-only or memory-mapped
            part: Tensor = cut.detach() if isinstance(cut, Tensor) else torch.from_numpy(np.array(cut))
            part = part if bytewise else (255 * part.float()).round().to(torch.uint8)
            part = (part.movedim(1, -1) if first_channels else part).contiguous()
            stream = Stream(seed, name, severity, first + start, len(part), device)
            shape = (*part.shape[:3], part.shape[3] if part.ndim == 4 else 1)
            corrupted = function(part.view(shape), stream, values).view(part.shape)
            corrupted = corrupted.movedim(-1, 1) if first_channels else corrupted
            out[start : start + chunk] = corrupted if bytewise else corrupted / most
    return out.numpy() if isinstance(images, np.ndarray) else out


def check(images: Any) -> None:
    """Raise InputError unless these are images that `corrupt` takes."""
    expected = "expected uint8 (N, H, W, 3), (N, H, W, 1) or (N, H, W)"
    if not isinstance(images, np.ndarray | Tensor):
        raise InputError(f"images: {expected} as numpy array or torch tensor, got {type(images).__name__}")
    shape = tuple(images.shape)
    if images.ndim not in (3, 4) or 0 in shape:
        raise InputError(f"images: {expected}, none of them 0, got {shape}")
    kind = str(images.dtype).removeprefix("torch.")
    if kind != "uint8" and not (kind in _FLOATS and images.min() >= 0 and images.max() <= 1):
        fix = "Fix: divide by 255" if kind in _FLOATS else "Fix: scale to 0..255 and cast to uint8"
        raise InputError(f"images: {expected}, or floats in [0, 1], got {images.dtype} {shape}. {fix}")
    if images.ndim == 4 and shape[3] not in (1, 3) and not _channels_first(shape):
        raise InputError(f"images: {expected}, or with the channels second, got {shape}")
    if images.ndim == 3 and shape[2] in (1, 3):
        raise InputError(f"images: {expected}, got {shape}. For one image add a first dimension: images[None]")
    if images.ndim == 3 and shape[0] == 3:
        raise InputError(
            f"images: {expected}, got {shape}, which may be one channels-first picture or three grey ones. "
            "Fix: permute to (H, W, 3) and add a first dimension, or give the grey ones a channel: images[..., None]"
        )
    height, width = shape[2:] if _channels_first(shape) else shape[1:3]
    if min(height, width) < SMALLEST:
        raise InputError(f"images: expected sides of at least {SMALLEST} pixels, got {height}x{width}")


def _channels_first(shape: tuple[int, ...]) -> bool:
    """Whether the channels come second: no picture is so small that this length could be its height."""
    return len(shape) == 4 and shape[3] not in (1, 3) and shape[1] in (1, 3)
