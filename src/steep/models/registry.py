"""Models by name: what there is, and `build`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from torch import nn

from steep.errors import check_known, unknown
from steep.models.resnet import DEPTHS, ResNet
from steep.models.wide_resnet import WideResNet

_WRN = re.compile(r"wrn-(\d+)-(\d+)")
_ANY_WRN = "wrn-DEPTH-WIDTH"


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What `MODELS` knows of a model: how to make it, what it is, which paper and which options it has."""

    make: Callable[..., nn.Module]
    summary: str
    paper: str
    options: tuple[str, ...]


def _wrn(depth: int, width: int) -> ModelInfo:
    return ModelInfo(
        make=partial(WideResNet, depth, width),
        summary=f"WideResNet, {depth} layers, {width} times as wide, BatchNorm",
        paper="Zagoruyko & Komodakis, BMVC 2016",
        options=("dropout",),
    )


def _resnet(depth: int, norm: str) -> ModelInfo:
    batch = norm == "bn"
    return ModelInfo(
        make=partial(ResNet, depth, norm="batch" if batch else "group"),
        summary=f"ResNet, {depth} layers, 3×3 stem, {'BatchNorm' if batch else 'GroupNorm'}",
        paper="He et al., CVPR 2016" + ("" if batch else "; Wu & He, ECCV 2018"),
        options=("width",) if batch else ("groups", "width"),
    )


MODELS: Mapping[str, ModelInfo] = MappingProxyType(
    {
        **{f"wrn-{depth}-{width}": _wrn(depth, width) for depth, width in ((16, 4), (28, 10), (40, 2))},
        **{f"resnet-{depth}-{norm}": _resnet(depth, norm) for depth in DEPTHS for norm in ("bn", "gn")},
    }
)
"""The named models. `build` also takes any other `wrn-DEPTH-WIDTH`."""


def build(name: str, num_classes: int, *, in_channels: int = 3, **options: object) -> nn.Module:
    """Make a freshly initialised model by name.

    Args:
        name: a name in `MODELS`, or `wrn-DEPTH-WIDTH` with a depth of 6n + 4.
        num_classes: number of logits.
        in_channels: channels of the images, 3 for RGB and 1 for grey.
        options: what that model takes besides (`dropout` of a WideResNet, `groups` and `width` of a ResNet).

    >>> import torch
    >>> net = build("wrn-10-1", num_classes=10, in_channels=1, dropout=0.1)
    >>> net(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 10])
    >>> build("resnet18-bn", 10)
    Traceback (most recent call last):
    steep.errors.UnknownNameError: unknown model 'resnet18-bn': did you mean 'resnet-18-bn'? Known: ...
    """
    info = MODELS.get(name) if isinstance(name, str) else None
    if info is None:
        match = _WRN.fullmatch(str(name))
        if match is None:
            raise unknown("model", str(name), [*MODELS, _ANY_WRN])
        info = _wrn(int(match[1]), int(match[2]))
    check_known(f"option of {name}", info.options, *options)
    return info.make(num_classes=num_classes, in_channels=in_channels, **options)
