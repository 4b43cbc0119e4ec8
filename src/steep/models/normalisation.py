"""A model that carries its own input normalisation, so that callers always hand over images in [0, 1].

The numbers are those its trainers used, as transformers, timm or torchvision say of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from steep.errors import InputError

_NONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic")  # as Pillow, and so transformers, numbers them


class Normalized(nn.Module):
    """Subtract `mean` and divide by `std`, channel by channel, before the model.

    What the model answers (a tensor, a tuple, an object with `.logits`, ...) comes back as it is. `mean` and
    `std` are buffers: they move with the module and are saved with it, and no optimiser sees them. They are
    saved on purpose: a checkpoint that forgets its normalisation fails silently. Weights without them load
    into `.model`.

    Args:
        model: maps normalised images (B, C, H, W) to logits.
        mean: one number per channel, in units of images in [0, 1].
        std: one positive number per channel.

    >>> net = Normalized(nn.Flatten(), mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.5])
    >>> net(torch.ones(1, 3, 1, 1))
    tensor([[2., 2., 1.]])
    >>> net(torch.ones(1, 1, 28, 28))
    Traceback (most recent call last):
    steep.errors.InputError: images: expected (B, 3, H, W), one channel per mean, got (1, 1, 28, 28)
    """

    mean: Tensor
    std: Tensor
    image_range: ClassVar = (0.0, 1.0)  # what it takes; images beyond were normalised before, and are warned about

    def __init__(self, model: nn.Module, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", _per_channel("mean", mean))  # (C, 1, 1)
        self.register_buffer("std", _per_channel("std", std))  # (C, 1, 1)
        if self.mean.shape != self.std.shape:
            raise InputError(f"std: expected as many numbers as mean has, {len(self.mean)}, got {len(self.std)}")
        if not bool((self.std > 0).all()):
            raise InputError(f"std: expected positive numbers, got {self.std.flatten().tolist()}")

    def forward(self, x: Tensor) -> Any:
        """Answer what the model answers for the normalised images (B, C, H, W)."""
        channels = len(self.mean)
        if x.ndim != 4 or x.shape[1] != channels:
            raise InputError(f"images: expected (B, {channels}, H, W), one channel per mean, got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise InputError(f"images: expected floating point in [0, 1], got {x.dtype}; divide by 255")
        # In the images' own precision, so that a bfloat16 model is not handed float32.
        return self.model((x - self.mean.to(x.dtype)) / self.std.to(x.dtype))

    def extra_repr(self) -> str:
        """Show the numbers in `repr`."""
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


def _per_channel(name: str, values: Sequence[float] | Tensor) -> Tensor:
    # A copy: a buffer that aliased the caller's tensor would change with it.
    flat = torch.as_tensor(values, dtype=torch.float32).detach().clone().flatten()
    if flat.numel() == 0 or not bool(flat.isfinite().all()):
        raise InputError(f"{name}: expected one finite number per channel, got {flat.tolist()}")
    return flat[:, None, None]


@dataclass(frozen=True)
class InputSpec:
    """Mean and deviation for images in [0, 1], and how pictures become squares (`steep.data.load`); None: not said."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None
    crop: float | None = None
    interpolation: str | None = None


def normalized(model: nn.Module, like: object = None) -> Normalized:
    """Put the normalisation a model was trained with before it, so that it takes images in [0, 1].

    Args:
        model: maps normalised images to logits.
        like: what knows the normalisation: an image processor of transformers, the weights or transforms of
            torchvision, a data configuration of timm. None for a model of timm's, which carries its own.

    >>> class FromTimm(nn.Flatten):
    ...     pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.5), "input_size": (3, 224, 224)}
    >>> normalized(FromTimm())(torch.ones(1, 3, 1, 1))
    tensor([[2., 2., 1.]])
    """
    if isinstance(model, Normalized):
        raise InputError("model: it has its normalisation already. Use it as it is")
    spec = input_spec(model if like is None else like)
    if spec.mean is None or spec.std is None:
        raise InputError(
            f"normalisation: {type(model if like is None else like).__name__} says none. Give an image processor, "
            "torchvision's weights or timm's data configuration, or numbers: steep.models.Normalized(model, mean, std)"
        )
    return Normalized(model, spec.mean, spec.std)


def input_spec(like: object) -> InputSpec:
    """Read normalisation, size and crop off an image processor, weights, transforms or a configuration."""
    if callable(getattr(like, "transforms", None)):  # a member of torchvision's weights
        like = like.transforms()  # type: ignore[attr-defined]
    if not isinstance(like, Mapping):
        like = getattr(like, "pretrained_cfg", None) or getattr(like, "default_cfg", None) or like
    get = _getter(like)
    pictures = InputSpec(None, None, *_square(get))
    mean, std = (get(f"image_{name}", None) or get(name, None) for name in ("mean", "std"))
    if mean is None or std is None or get("do_normalize", True) is False:
        mean, std = _NONE
        if get("rescale_factor", None) is None:
            return pictures
    # transformers counts from pixels in 0–255, multiplies and perhaps moves by −1; ours are in [0, 1] already
    scale = 255 * float(get("rescale_factor", None) or 1 / 255) if get("do_rescale", True) is not False else 255.0
    moved = 1.0 if get("rescale_offset", False) else 0.0
    mean = tuple(round((float(m) + moved) / scale, 12) for m in mean)  # without what dividing by 255 leaves behind
    std = tuple(round(float(s) / scale, 12) for s in std)
    return pictures if (mean, std) == _NONE else replace(pictures, mean=mean, std=std)


def _getter(thing: object) -> Callable[..., Any]:
    return thing.get if isinstance(thing, Mapping) else lambda *of: getattr(thing, *of)


def _square(get: Callable[..., Any]) -> tuple[int | None, float | None, str | None]:
    """How pictures become squares: side, crop and interpolation."""
    size, short = _side(get, "crop_size", "size", "input_size"), _side(get, "resize_size", "size")
    crop = get("crop_pct", None) or (size / short if size and short else None)
    crop = float(crop) if isinstance(crop, (int, float)) and 0 < crop <= 1 else None
    method = get("interpolation", None)
    if isinstance(number := get("resample", None), int) and 0 <= number < len(_RESAMPLE):
        method = _RESAMPLE[number]
    method = str(getattr(method, "value", method)).lower()  # torchvision has an enumeration
    return size, crop, method if method in _RESAMPLE else None


def _side(get: Callable[..., Any], *names: str) -> int | None:
    for name in names:
        if name == "crop_size" and get("do_center_crop", True) is False:
            continue
        side = get(name, None)
        if isinstance(side, Mapping) or hasattr(side, "height"):
            ask = _getter(side)
            side = ask("height", None) or ask("shortest_edge", None)
        if isinstance(side, (tuple, list)) and side:
            side = side[-1]
        if isinstance(side, int) and side > 0:
            return side
    return None
