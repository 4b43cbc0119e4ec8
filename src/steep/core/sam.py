"""Sharpness-aware minimisation (Foret et al., ICLR 2021): take the gradient at the worst point nearby."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from steep.core.batch import average_gradients


@contextmanager
def worst_nearby(params: Sequence[nn.Parameter], radius: float) -> Iterator[None]:
    """Inside, the parameters stand at w + ρ g/‖g‖ and their gradients are cleared; after, at w bit for bit.

    g is the gradient they hold on entry. A gradient taken inside is still there afterwards, for the optimiser.
    """
    before = [p.detach().clone() for p in params]
    average_gradients(list(params))
    with torch.no_grad():
        grads: list[Tensor] = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        length = torch.stack(torch._foreach_norm(grads)).norm() + 1e-12
        torch._foreach_add_(list(params), torch._foreach_mul(grads, radius / length))
        for p in params:
            p.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(params), before)
