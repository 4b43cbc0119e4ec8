"""Updates that methods share: one step down a loss, and ways to move weights without a gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steep.core.batch import average_gradients
from steep.core.classifier import Classifier
from steep.core.method import State
from steep.errors import InputError


@dataclass
class DescentState(State):
    """The model and its optimiser: all that the simplest methods remember."""

    optimizer: torch.optim.Optimizer


def adam(model: Classifier, lr: float) -> torch.optim.Adam:
    """Adam over the adapted parameters, with the betas of Tent and TEA."""
    params = list(model.adapted().values())
    optimizer = torch.optim.Adam(params, lr=lr, betas=(0.9, 0.999), fused=True, capturable=params[0].is_cuda)
    for p in params:  # what torch would make at the first step: a state that never changes its shape is easy to undo
        step = torch.zeros((), device=p.device)
        optimizer.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    return optimizer


def sgd(model: Classifier, lr: float, momentum: float, *, nesterov: bool = False) -> torch.optim.SGD:
    """Gradient descent over the adapted parameters, with momentum."""
    params = list(model.adapted().values())
    optimizer = torch.optim.SGD(params, lr=lr, momentum=momentum, nesterov=nesterov and momentum > 0, fused=True)
    for p in params if momentum else ():
        optimizer.state[p] = {"momentum_buffer": torch.zeros_like(p)}
    return optimizer


def make_optimizer(kind: str, model: Classifier, lr: float, momentum: float = 0.9) -> torch.optim.Optimizer:
    """Adam, or SGD with momentum, on the adapted parameters."""
    return adam(model, lr) if kind == "adam" else sgd(model, lr, momentum)


def descend(optimizer: torch.optim.Optimizer, loss: Tensor, when: Tensor | None = None) -> None:
    """One step down the loss; where a flag on the device says so, if one is given."""
    backward(loss)
    update(optimizer, when)


def backward(loss: Tensor) -> None:
    """Add to the gradients. Of several losses, each is best taken before the next is computed: it frees its memory."""
    check_gradient(loss)
    loss.backward()  # type: ignore[no-untyped-call]


def check_gradient(loss: Tensor) -> None:
    """Refuse a model that cannot be adapted by gradients."""
    if not loss.requires_grad:
        raise InputError(
            "model: its answer does not depend on what adapts. Does its forward run under no_grad or detach its logits?"
        )


def update(optimizer: torch.optim.Optimizer, when: Tensor | None = None) -> None:
    """Move by the gradients, and free them at once: they are no part of the state."""
    average_gradients([p for group in optimizer.param_groups for p in group["params"]])
    if when is None:
        optimizer.step()
    elif not all(group.get("fused") for group in optimizer.param_groups):  # the host must decide
        if bool(when):
            optimizer.step()
    else:
        # torch's own way to call a step off on the device, made for gradients that overflow
        optimizer.found_inf = (~when).float()  # type: ignore[attr-defined]
        optimizer.grad_scale = None  # type: ignore[attr-defined]
        try:
            optimizer.step()
        finally:
            del optimizer.found_inf, optimizer.grad_scale  # type: ignore[attr-defined]
    optimizer.zero_grad(set_to_none=True)


@contextmanager
def worst_nearby(params: Sequence[nn.Parameter], radius: float) -> Iterator[None]:
    """Sharpness-aware minimisation (Foret et al., ICLR 2021): take the gradient at the worst point nearby.

    Inside, the parameters stand at w + ρ g/‖g‖ and their gradients are cleared; after, at w bit for bit. g is the
    gradient they hold on entry. A gradient taken inside is still there afterwards, for the optimiser.
    """
    average_gradients(list(params))
    with brought_back(params):
        with torch.no_grad():
            grads: list[Tensor] = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
            length = torch.stack(torch._foreach_norm(grads)).norm() + 1e-12
            torch._foreach_add_(list(params), torch._foreach_mul(grads, radius / length))
            for p in params:
                p.grad = None
        yield


@contextmanager
def brought_back(weights: Sequence[Tensor]) -> Iterator[None]:
    """Inside, weights may be moved; after, they are where they were, bit for bit."""
    before = copied(weights)
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(weights), before)


def copied(weights: Iterable[Tensor]) -> list[Tensor]:
    """Copy weights, for a second model with the same layers."""
    return [w.detach().clone() for w in weights]


@torch.no_grad()
def average(weights: Sequence[Tensor], others: Sequence[Tensor], keep: float) -> None:
    """Weights ← keep · weights + (1 − keep) · others, in place."""
    torch._foreach_lerp_(list(weights), list(others), 1 - keep)


@contextmanager
def exchanged(weights: Sequence[Tensor], others: Sequence[Tensor]) -> Iterator[None]:
    """Inside, both have each other's values; what happens to the ones happens to the others. For a second model.

    A gradient must not be taken through a forward pass from before it: the weights of that are no longer there.
    """
    _exchange(weights, others)
    try:
        yield
    finally:
        _exchange(weights, others)


@torch.no_grad()
def _exchange(weights: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    before = copied(weights)
    torch._foreach_copy_(list(weights), list(others))
    torch._foreach_copy_(list(others), before)


@torch.no_grad()
def recover(optimizer: torch.optim.Optimizer, origin: Sequence[Tensor], where: Tensor) -> None:
    """Bring back the parameters there were and forget every moment, where a flag on the device says so."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for p, source in zip(params, origin, strict=True):
        p.copy_(torch.where(where, source, p))
        for moment in optimizer.state[p].values():
            moment.masked_fill_(where, 0)
