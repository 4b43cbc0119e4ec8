"""What a model knows of an image before its last linear layer, and that layer: found while a batch passes through."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from steep.core.classifier import Classifier
from steep.core.layers import census
from steep.core.losses import widen
from steep.errors import InputError, NothingToAdaptError


class Features(NamedTuple):
    """A batch on its way through the last layer."""

    logits: Tensor  # (B, K), the model's answer
    features: Tensor  # (B, D), what the last linear layer saw
    head: nn.Linear  # D → K


def require_head(model: nn.Module, for_method: str) -> None:
    """Refuse, before the first batch, a model that has no linear layer at all."""
    if not any(isinstance(module, nn.Linear) for module in model.modules()):
        raise NothingToAdaptError(
            f"{for_method} reads the features before the last nn.Linear of a model, and this one has none. "
            f"It has: {census(model)}. Use a method that needs no features, e.g. 'tent' or 'tea'."
        )


def features_of(model: Classifier, x: Tensor) -> Features:
    """Answer the images; of the linear layers that gave (B, K), the last one to run is the head.

    The forward pass is not compiled: hooks look into it.
    """
    calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def look(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> None:
        if output.ndim == 2:
            calls.append((layer, args[0], output))

    hooks = [m.register_forward_hook(look) for m in model.modules() if isinstance(m, nn.Linear)]
    try:
        with model.uncompiled():
            logits = model(x)
    finally:
        for hook in hooks:
            hook.remove()
    for head, features, output in reversed(calls):
        if output.shape[1] == logits.shape[1]:
            return Features(logits, widen(features)[: len(x)], head)  # a rank without images ran a blank one
    raise InputError(
        f"model: expected logits (B, {logits.shape[1]}) that an nn.Linear gives, to read the features before it, got "
        f"none from {len(hooks)} linear layers ({census(model.net)}). Use a method that needs no features, e.g. 'tent'"
    )
