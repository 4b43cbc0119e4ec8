"""Find, choose and configure the layers that adapt.

Two things can follow the test data: parameters (`select`) and BatchNorm statistics (`use_batch_statistics`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize

from steep.core.dist import sync_batchnorm
from steep.core.dist.group import SCOPE
from steep.errors import InputError, NothingToAdaptError, unknown

Params = str | Sequence[str]
"""Which parameters adapt: "norm", "all", layer kinds such as ["norm", "linear"], or a regular expression."""

FULL_BATCH = 16
"""From this many images on, BatchNorm trusts the batch alone; below it, the source statistics help out."""

# Layers of other libraries that normalise without inheriting from torch's: timm's RmsNorm, LlamaRMSNorm, ...
_NORM_NAME = re.compile(r"Norm(Act)?(\dd)?$")
_TORCH_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def is_norm(module: nn.Module) -> bool:
    """Whether a layer normalises: torch's own kinds, their subclasses, and layers that are named so."""
    return isinstance(module, _TORCH_NORMS) or bool(_NORM_NAME.search(type(module).__name__))


KINDS: dict[str, Callable[[nn.Module], bool]] = {
    "norm": is_norm,
    "conv": lambda m: isinstance(m, _ConvNd),
    "linear": lambda m: isinstance(m, nn.Linear),
    "embedding": lambda m: isinstance(m, nn.Embedding),
}


def select(model: nn.Module, params: Params) -> dict[str, nn.Parameter]:
    """Let the chosen parameters take gradients and freeze all others; the names are the model's own.

    A string that is a layer kind or "all" means that; any other string is a regular expression searched for in
    parameter names, so `params=r"layer[12]\\..*bn"` adapts the first two stages only.
    """
    model.requires_grad_(False)
    if params == "all":
        chosen = dict(model.named_parameters())
    elif isinstance(params, str) and params not in KINDS:
        chosen = {n: p for n, p in model.named_parameters() if _pattern(params).search(n)}
    else:
        kinds = [params] if isinstance(params, str) else list(params)
        for kind in kinds:
            if kind not in KINDS:
                raise unknown("layer kind in params", str(kind), KINDS)
        chosen = {
            (f"{prefix}.{name}" if prefix else name): parameter
            for prefix, module in model.named_modules()
            if any(KINDS[kind](module) for kind in kinds)
            for name, parameter in _own_parameters(module)
        }
    chosen = {name: p for name, p in chosen.items() if p.is_floating_point()}
    if not chosen:
        raise NothingToAdaptError(
            f"params={params!r} matches no parameter of this model. It has: {census(model)}. "
            'Choose other layers, e.g. params="all", params=["linear"] or a regular expression over names.'
        )
    for parameter in chosen.values():
        parameter.requires_grad_(True)
    return chosen


def _own_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Give a layer's parameters, and where one is parametrised (`torch.nn.utils.parametrize`), what it is made from."""
    yield from module.named_parameters(recurse=False)
    if parametrize.is_parametrized(module):
        for tensor, made in module.parametrizations.items():  # type: ignore[operator, union-attr]
            for name, parameter in made.named_parameters(recurse=False):
                yield f"parametrizations.{tensor}.{name}", parameter


def _pattern(params: str) -> re.Pattern[str]:
    try:
        if params:
            return re.compile(params)
    except re.error as error:
        raise InputError(f"params: expected layer kinds or a regular expression, got {params!r} ({error})") from error
    raise InputError("params: expected layer kinds or a regular expression, got an empty one")


def census(model: nn.Module) -> str:
    """Count the layers that hold parameters or statistics, for error messages: "3 Conv2d, 1 Linear"."""
    kinds = Counter(
        type(m).__name__ for m in model.modules() if is_norm(m) or any(True for _ in m.parameters(recurse=False))
    )
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items()) or "no layer with parameters"


def batch_norms(model: nn.Module, *, for_method: str | None = None, running: bool = False) -> list[_BatchNorm]:
    """All BatchNorm layers (1d, 2d, 3d, Sync, subclasses), or those with running statistics.

    A method that lives off them names itself, and a model without any is refused.
    """
    layers = [m for m in model.modules() if isinstance(m, _BatchNorm) and (not running or m.running_mean is not None)]
    if for_method and not layers:
        raise NothingToAdaptError(
            f"{for_method} adapts the {'running ' if running else ''}statistics of BatchNorm layers, and this model "
            f"has none. It has: {census(model)}. Use a method that adapts parameters, e.g. 'tent' or 'tea'."
        )
    return layers


def use_source_statistics(model: nn.Module) -> None:
    """Undo `use_batch_statistics`: a model that was adapted before comes configured for it."""
    for layer in batch_norms(model):
        for key, hook in list(layer._forward_pre_hooks.items()):
            if hook is _mix_small_batches:
                del layer._forward_pre_hooks[key]
                layer.track_running_stats = layer.running_mean is not None
        layer.training = False


def use_batch_statistics(model: nn.Module) -> None:
    """Let every BatchNorm layer normalise by the batch it sees, and keep its running statistics as they are.

    Fewer than `FULL_BATCH` images say too little about a channel. Then mean and variance are mixed,
    w · batch + (1 − w) · source with w = B / FULL_BATCH, so a batch of one, even of one value per channel, is safe.
    """
    for layer in batch_norms(model):
        layer.track_running_stats = False  # with training=True: torch passes no running statistics at all
        layer.training = True
        layer.register_forward_pre_hook(_mix_small_batches)


def _mix_small_batches(layer: Any, args: tuple[Tensor, ...]) -> Tensor | None:
    x = args[0]  # (B, C, ...)
    scope = None if torch.compiler.is_compiling() else SCOPE.get()  # ranks that share a batch compile nothing
    if scope is not None:
        return sync_batchnorm.normalise(layer, x, scope, FULL_BATCH)
    share = min(1.0, x.shape[0] / FULL_BATCH)
    # in training, SyncBatchNorm asks the other processes for their statistics: these streams are not ours
    local = not isinstance(layer, nn.SyncBatchNorm)
    layer.training = local and (share == 1 or layer.running_mean is None)
    if layer.training or layer.running_mean is None:
        return None
    # The layer itself now normalises by its running statistics, whatever its class does besides (activation,
    # drop path). Feeding it the mixed-normalised features in those units gives the mixed answer.
    shape = (1, -1) + (1,) * (x.ndim - 2)
    source_mean = layer.running_mean.view(shape)
    source_var = layer.running_var.view(shape)
    wide = x.to(torch.promote_types(x.dtype, source_mean.dtype))
    var, mean = torch.var_mean(wide, dim=(0, *range(2, x.ndim)), correction=0, keepdim=True)
    mean = share * mean + (1 - share) * source_mean
    var = share * var + (1 - share) * source_var
    mixed: Tensor = (wide - mean) * ((source_var + layer.eps) / (var + layer.eps)).sqrt() + source_mean
    return mixed.to(x.dtype)
