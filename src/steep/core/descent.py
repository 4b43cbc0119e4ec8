"""The update that most methods share: Adam on what adapts, one step at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.method import State
from steep.core.source import Classifier
from steep.errors import InputError


@dataclass
class DescentState(State):
    """The model and its optimiser: all that the simplest methods remember."""

    optimizer: torch.optim.Optimizer


def adam(model: Classifier, lr: float) -> torch.optim.Adam:
    """Adam over the adapted parameters, with the betas of Tent and TEA."""
    return torch.optim.Adam(list(model.adapted().values()), lr=lr, betas=(0.9, 0.999))


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the loss. Gradients are freed at once: they are no part of the state."""
    if not loss.requires_grad:
        raise InputError(
            "model: its answer does not depend on what adapts. Does its forward run under no_grad or detach its logits?"
        )
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
