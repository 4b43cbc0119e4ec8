"""Are these images scaled the way the model was trained on? The commonest mistake, and a silent one.

A trained BatchNorm remembers the mean and the deviation of what used to reach it. Corrupted pictures change these a
little; pictures in 0–255, not normalised or normalised twice change them much, and in a way that one known
rescaling mends. Both together are the sign: far from what was usual, and close to it after that rescaling.
docs/models.md has the margins that the two limits below were measured with.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from steep.core.classifier import Classifier
from steep.core.layers import FULL_BATCH, is_norm
from steep.errors import SteepWarning

FAR = 0.75  # root mean square over channels of (log deviation ratio, shift in deviations); corruptions stay below 0.74
BETTER = 2.0  # times closer after the rescaling that the warning names
BETTER_IF_UNSURE = 10.0  # the same for a few images only, or statistics that may not be those of a training
SETTLED = 100  # batches after which running statistics are those of a training; dua itself takes 80
BYTES = 16.0  # no normalised image reaches this; one in 0–255 does
SLACK = 0.25  # how far over the edge of its range an image may be, e.g. after bicubic resizing

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CENTRED = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
_WRAP = "wrap the model: steep.models.Normalized(model, mean, std)"
_DIVIDE = "divide by 255: x / 255"
_NOT_YOURS = "leave your own normalisation out: the model does it, or was trained without"

_warned: WeakSet[Classifier] = WeakSet()  # once is enough


def check(x: Tensor, model: Classifier, probe: ScaleProbe) -> None:
    """Warn once where the images look wrongly scaled; the probe has seen a forward of them."""
    if model in _warned or not len(x):  # a rank of a group may have no image
        return
    warning = _by_statistics(x, model, probe) if probe.distances else _by_range(x, model.net)
    if warning:
        _warned.add(model)
        warnings.warn(warning, SteepWarning, stacklevel=2)


class ScaleProbe:
    """While open, notes how far the inputs of the first two norm layers are from those layers' running statistics.

    Open it inside `model.uncompiled()`: a compiled forward would be compiled once more for the hooks.
    """

    def __init__(self, model: Classifier, *, stop: bool = False) -> None:
        self.distances: list[Tensor] = []  # ends before a layer without statistics of a training set
        self.settled = True
        self._stop, self._looks = stop, True
        self._layers = [] if hasattr(model.net, "_orig_mod") else [m for m in model.modules() if _normalises(m)]

    def __enter__(self) -> ScaleProbe:
        # before all other hooks: those that mix statistics change what the layer sees
        self._hooks = [layer.register_forward_pre_hook(self._look, prepend=True) for layer in self._layers]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _look(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        if not self._looks or not args:
            return
        distance = _distance(args[0].detach().float(), layer) if isinstance(layer, _BatchNorm) else None
        if distance is not None:
            self.distances.append(distance)
            # none counted: a file from before torch counted, or a converted one. The second layer will tell
            self.settled &= not 0 < int(layer.num_batches_tracked or 0) < SETTLED  # type: ignore[arg-type]
        self._looks = distance is not None and len(self.distances) < 2
        if self._stop and not self._looks:
            raise _Enough


def _normalises(module: nn.Module) -> bool:
    """Whether it is itself a norm layer: timm's ConvNormAct is named like one, and holds one."""
    return is_norm(module) and not any(is_norm(inner) for inner in module.modules() if inner is not module)


class _Enough(Exception):
    """The first norm layer has been seen: the rest of the forward is not needed."""


def _distance(x: Tensor, layer: _BatchNorm) -> Tensor | None:
    """Root mean square over channels of how many deviations, and by what factor, the statistics are off.

    None for a layer without running statistics, or with those that a fresh one starts with.
    """
    mean, var = layer.running_mean, layer.running_var
    if mean is None or var is None or not bool((mean != 0).any() & (var != 1).any()):
        return None
    var_x, mean_x = torch.var_mean(x, dim=(0, *range(2, x.ndim)), correction=0)
    usual = var.float() + layer.eps
    factor = ((var_x + layer.eps) / usual).log() / 2
    shift = (mean_x - mean.float()) / usual.sqrt()
    return (factor.square() + shift.square()).mean().sqrt()


@torch.no_grad()
def _by_statistics(x: Tensor, model: Classifier, probe: ScaleProbe) -> str | None:
    distance = float(probe.distances[0])
    if not math.isfinite(distance) or distance <= FAR:
        return None
    distances = {fix: _distances(change(x), model) for fix, change in _rescalings(x).items()}
    fix, (first, second) = min(distances.items(), key=lambda each: each[1])
    # The second layer tells statistics that a training of this very model left from others, e.g. made up ones.
    sure = second <= FAR and probe.settled and len(x) >= FULL_BATCH
    better = BETTER if sure else BETTER_IF_UNSURE
    if distance < better * first:
        return None  # unusual, but no known mistake explains it: drift, which is what adapting is for
    return (
        f"images: their scale is not the one this model was trained on (values {_span(x)}): the statistics of its "
        f"first norm layer are off by {distance:.2g}, and by {first:.2g} only if you {fix}"
    )


def _distances(x: Tensor, model: Classifier) -> tuple[float, float]:
    with model.uncompiled(), ScaleProbe(model, stop=True) as probe, contextlib.suppress(_Enough):
        model(x)
    return tuple([*map(float, probe.distances), math.inf, math.inf][:2])  # type: ignore[return-value]


def _rescalings(x: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Give what people forget or do twice: the fix in words → what it does to the images."""
    fixes: dict[str, Callable[[Tensor], Tensor]] = {_DIVIDE: lambda x: x / 255, "multiply by 255": lambda x: x * 255}
    for mean, std in (IMAGENET, CENTRED):
        m, s = (_planes(values, x) for values in (mean, std))
        named = f"with the mean and std it was trained with, such as {mean} and {std}"
        fixes[f"{_WRAP}, {named}"] = lambda x, m=m, s=s: (x - m) / s  # type: ignore[misc]
        fixes[f"{_DIVIDE}, and {_WRAP}, {named}"] = lambda x, m=m, s=s: (x / 255 - m) / s  # type: ignore[misc]
        fixes[f"{_NOT_YOURS} (mean {mean}, std {std})"] = lambda x, m=m, s=s: x * s + m  # type: ignore[misc]
    return fixes


def _planes(values: tuple[float, ...], x: Tensor) -> Tensor:
    """One number per channel; for images that are not RGB the mean of the three."""
    numbers = torch.tensor(values, device=x.device, dtype=x.dtype)
    numbers = numbers if x.shape[1] == len(values) else numbers.mean().expand(x.shape[1])
    return numbers.view(-1, *[1] * (x.ndim - 2))


def _by_range(x: Tensor, net: nn.Module) -> str | None:
    """Judge by the values alone, for models whose first norm layer remembers nothing of its training."""
    low, high = float(x.min()), float(x.max())
    start = f"images: expected values as the model was trained on, got {_span(x)}"
    if high > BYTES:
        return f"{start}. They look like 0–255: {_DIVIDE}"
    takes = getattr(net, "image_range", None)  # a model that normalises by itself says what it takes
    if takes is not None:
        if low < takes[0] - SLACK or high > takes[1] + SLACK:
            return f"{start}. This model takes {takes[0]:g} to {takes[1]:g}, so {_NOT_YOURS}"
        return None
    config = getattr(net, "pretrained_cfg", None) or {}  # timm's models carry the normalisation they want
    mean = config.get("mean") if isinstance(config, dict) else None
    if mean and min(mean) > 0 and low >= 0 and high <= 1:
        return f"{start}. This model wants them normalised: steep.models.normalized(model) does it for you"
    return None


def _span(x: Tensor) -> str:
    return f"from {float(x.min()):.3g} to {float(x.max()):.3g}"
