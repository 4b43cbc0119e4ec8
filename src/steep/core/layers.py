"""Find, choose and configure the layers that adapt.

Two things can follow the test data: parameters (`select`) and BatchNorm statistics (`use_batch_statistics`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize

from steep.core.dist import sync_batchnorm
from steep.core.dist.group import SCOPE
from steep.core.mixed_norm import moments, normalise, per_channel
from steep.errors import NothingToAdaptError, check_known

Params = str | Sequence[str]
"""Which parameters adapt: "norm", "all", layer kinds such as ["norm", "linear"], or a regular expression."""

FULL_BATCH = 16
"""From this many images on, BatchNorm trusts the batch alone; below it, the source statistics help out."""
MANY_CLASSES = 200
"""Above as many classes n images weigh n / (n + K) where that is asked for: usual batches do not show them all."""

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
        chosen = {n: p for n, p in model.named_parameters() if re.search(params, n)}
    else:
        kinds = [params] if isinstance(params, str) else list(params)
        check_known("layer kind in params", KINDS, *map(str, kinds))
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


class Mixing:
    """The hook of BatchNorm layers that normalise by w · batch + (1 − w) · running statistics, mean and variance alike.

    With `share` w is that number; with `prior` n images weigh w = n / (n + prior). Both take the unbiased variance of
    the batch, as running statistics do, unless told not to. With neither, w = n / FULL_BATCH and 1 at most: then the
    batch alone counts.
    """

    constant = False  # whether the gradient takes the statistics for constants

    def __init__(self, share: float | None = None, prior: int | None = None, *, unbiased: bool = True) -> None:
        self.share, self.prior = share, prior
        self._unbiased = unbiased
        self.seen: list[tuple[Any, Tensor, Tensor]] | None = None  # (layer, mean, variance), while someone asks for it
        self.off = False  # whether the running statistics alone count for now
        self.helper: int | None = None  # a prior for now, in place of how it mixes otherwise
        self.classes = 0  # of the model, where these are asked for; 0: not known

    @property
    def always(self) -> bool:
        """Whether it mixes however large the batch is."""
        return self.share is not None or self._source_images is not None

    @property
    def many_classes(self) -> bool:
        """Whether no batch is expected to show all classes."""
        return self.classes > MANY_CLASSES

    @property
    def _source_images(self) -> int | None:
        """How many images the running statistics count for, if they do."""
        known = self.helper, self.prior, self.classes if self.many_classes else None
        return next((number for number in known if number is not None), None)

    def release(self) -> None:
        """Mix as before: forget what was asked for now."""
        self.off, self.helper, self.seen = False, None, None

    @property
    def unbiased(self) -> bool:
        """Whether it takes the unbiased variance of the batch."""
        return self._unbiased and self.always

    def weight(self, images: Any) -> Any:
        """How much the batch weighs, as a number or, for a number on the device, as one on the device."""
        if (prior := self._source_images) is not None:
            return images / (images + prior)
        return images / FULL_BATCH if self.share is None else self.share + 0 * images

    def spread(self, values: Any) -> Any:
        """What the biased variance of so many values has to be multiplied by."""
        return values / (values - 1 + (values == 1)) if self.unbiased else 1.0

    def statistics(self, layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (C,) that the layer normalises x (B, C, ...) by."""
        return self._mixed(layer, x, *moments(x.detach() if self.constant else x, _wide(layer, x)))

    def _mixed(self, layer: Any, x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Mix the statistics of the batch with the running ones."""
        share, var = self._share(x), self.spread(x[:, 0].numel()) * var
        return share * mean + (1 - share) * layer.running_mean, share * var + (1 - share) * layer.running_var

    def _share(self, x: Tensor) -> Any:
        return min(1.0, self.weight(x.shape[0]))

    def note(self, layer: Any, mean: Tensor, var: Tensor) -> None:
        """Tell what a layer normalises by, if someone asks for it."""
        if self.seen is not None:
            self.seen.append((layer, mean, var))

    def __call__(self, layer: Any, args: tuple[Tensor, ...]) -> Tensor | None:
        """Give the layer features that it normalises, in whatever way it does it, to the mixed answer."""
        x = args[0]  # (B, C, ...)
        if self.off and layer.running_mean is not None:
            layer.training = False
            return None
        scope = None if torch.compiler.is_compiling() else SCOPE.get()  # ranks that share a batch compile nothing
        if scope is not None:
            return sync_batchnorm.normalise(layer, x, scope, self)
        whole = not self.always and x.shape[0] >= FULL_BATCH
        # in training, SyncBatchNorm asks the other processes for their statistics: these streams are not ours
        local = not isinstance(layer, nn.SyncBatchNorm)
        layer.training = local and (whole or layer.running_mean is None)
        if layer.training or layer.running_mean is None:
            if self.seen is not None and layer.running_mean is not None:
                self.note(layer, *self.statistics(layer, x.detach()))
            return None
        # The layer itself now normalises by its running statistics, whatever its class does besides (activation,
        # drop path). Feeding it the mixed-normalised features in those units gives the mixed answer.
        if torch.compiler.is_compiling():
            return self._by_operations(layer, x)
        if not (values := x[:, 0].numel()):
            return None
        with torch.no_grad():
            of_batch, var = moments(x, _wide(layer, x))
            mean, var = self._mixed(layer, x, of_batch, var)
        self.note(layer, mean, var)
        source = layer.running_mean, layer.running_var
        each = None if self.constant else self._share(x) / values
        y: Tensor = normalise(x, mean, var, of_batch, *source, layer.eps, each, self.spread(values))
        return y

    def _by_operations(self, layer: Any, x: Tensor) -> Tensor:
        """What `normalise` gives, in operations that a compiler joins and differentiates itself."""
        mean, var = self.statistics(layer, x)
        self.note(layer, mean, var)
        scale = ((layer.running_var + layer.eps) / (var + layer.eps)).sqrt()
        offset = layer.running_mean - mean * scale
        return torch.addcmul(per_channel(offset, x), x.to(mean.dtype), per_channel(scale, x)).to(x.dtype)


def _wide(layer: Any, x: Tensor) -> torch.dtype:
    """In which type statistics are computed, float32 at least."""
    return torch.promote_types(torch.promote_types(x.dtype, layer.running_mean.dtype), torch.float32)


def use_source_statistics(model: nn.Module) -> None:
    """Undo `use_batch_statistics`: a model that was adapted before comes configured for it."""
    for layer in batch_norms(model):
        for key, hook in list(layer._forward_pre_hooks.items()):
            if isinstance(hook, Mixing):
                del layer._forward_pre_hooks[key]
                layer.track_running_stats = layer.running_mean is not None
        layer.training = False


def use_batch_statistics(model: nn.Module, mixing: Mixing | None = None) -> None:
    """Let every BatchNorm layer normalise by the batch it sees, and keep its running statistics as they are.

    Fewer than `FULL_BATCH` images say too little about a channel. Then mean and variance are mixed,
    w · batch + (1 − w) · source with w = B / FULL_BATCH, so a batch of one, even of one value per channel, is safe.
    Another mixture of the two may be asked for.
    """
    mixing = mixing or Mixing()
    for layer in batch_norms(model):
        layer.track_running_stats = False  # with training=True: torch passes no running statistics at all
        layer.training = True
        layer.register_forward_pre_hook(mixing)


def mixing_of(layer: nn.Module) -> Mixing | None:
    """Give the hook by which a BatchNorm layer normalises; None where its running statistics alone count."""
    return next((hook for hook in layer._forward_pre_hooks.values() if isinstance(hook, Mixing)), None)


def mixings_of(model: nn.Module, *, running: bool = False) -> list[Mixing]:
    """List these hooks, of all BatchNorm layers or of those with running statistics."""
    return [hook for layer in batch_norms(model, running=running) if (hook := mixing_of(layer)) is not None]


@contextmanager
def mixtures(model: nn.Module) -> Iterator[list[tuple[Any, Tensor, Tensor]]]:
    """Inside, fill a list with (layer, mean, variance) of every BatchNorm layer that normalises by a mixture."""
    hooks = mixings_of(model)
    seen: list[tuple[Any, Tensor, Tensor]] = []
    for hook in hooks:
        hook.seen = seen
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.seen = None


def running_statistics(model: nn.Module) -> list[Tensor]:
    """List the mean and the variance that each BatchNorm layer normalises by."""
    return [t for layer in batch_norms(model) for t in (layer.running_mean, layer.running_var) if t is not None]


@contextmanager
def mixed_statistics(model: nn.Module, share: float) -> Iterator[list[tuple[Any, Tensor, Tensor]]]:
    """Inside, a model that normalises by its running statistics mixes in a share of the batch's, variance as it is.

    The list is that of `mixtures`.
    """
    use_batch_statistics(model, Mixing(share=share, unbiased=False))
    try:
        with mixtures(model) as seen:
            yield seen
    finally:
        use_source_statistics(model)


@torch.no_grad()
def keep_mixtures(seen: list[tuple[Any, Tensor, Tensor]]) -> None:
    """Let the mixtures that layers have normalised by be their running statistics from now on."""
    for layer, mean, var in seen:
        layer.running_mean.copy_(mean)
        layer.running_var.copy_(var)
    seen.clear()
