"""What a model of transformers, timm or torchvision wants of its pictures, read from what that library says of it.

>>> from types import SimpleNamespace
>>> processor = SimpleNamespace(image_mean=[0.5] * 3, image_std=[0.25] * 3, size={"height": 224, "width": 224})
>>> input_spec(processor)
InputSpec(mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), size=224)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from steep.errors import InputError
from steep.models.wrap import Normalized

_NONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class InputSpec:
    """Mean and deviation for images in [0, 1] (None: none is said), and the side of the pictures (None: any)."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    size: int | None = None


def normalized(model: nn.Module, like: object = None) -> Normalized:
    """Put the normalisation a model was trained with before it, so that it takes images in [0, 1].

    Args:
        model: maps normalised images to logits.
        like: what knows the normalisation: an image processor of transformers, the weights or transforms of
            torchvision, a data configuration of timm. None for a model of timm's, which carries its own.

    >>> import torch
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
    """Read normalisation and size of pictures off an image processor, weights, transforms or a configuration."""
    if callable(getattr(like, "transforms", None)):  # a member of torchvision's weights
        like = like.transforms()  # type: ignore[attr-defined]
    if not isinstance(like, Mapping):
        like = getattr(like, "pretrained_cfg", None) or getattr(like, "default_cfg", None) or like
    get: Callable[..., Any] = like.get if isinstance(like, Mapping) else lambda *of: getattr(like, *of)
    size = _side(get, ("crop_size", "size", "input_size"))
    mean, std = (get(f"image_{name}", None) or get(name, None) for name in ("mean", "std"))
    if mean is None or std is None or get("do_normalize", True) is False:
        mean, std = _NONE
        if get("rescale_factor", None) is None:
            return InputSpec(size=size)
    # transformers counts from pixels in 0–255, multiplies and perhaps moves by −1; ours are in [0, 1] already
    scale = 255 * float(get("rescale_factor", None) or 1 / 255) if get("do_rescale", True) is not False else 255.0
    moved = 1.0 if get("rescale_offset", False) else 0.0
    mean = tuple(_tidy((float(m) + moved) / scale) for m in mean)
    std = tuple(_tidy(float(s) / scale) for s in std)
    return InputSpec(None, None, size) if (mean, std) == _NONE else InputSpec(mean, std, size)


def _tidy(value: float) -> float:
    """Without what dividing by 255 and multiplying again leaves behind."""
    return round(value, 12)


def _side(get: Callable[..., Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name == "crop_size" and get("do_center_crop", True) is False:
            continue
        side = get(name, None)
        if isinstance(side, Mapping) or hasattr(side, "height"):
            ask = side.get if isinstance(side, Mapping) else lambda key, of=side: getattr(of, key, None)
            side = ask("height") or ask("shortest_edge")
        if isinstance(side, (tuple, list)) and side:
            side = side[-1]
        if isinstance(side, int) and side > 0:
            return side
    return None
