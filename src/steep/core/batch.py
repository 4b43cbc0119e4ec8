"""Numbers over a batch of images, on the device: nobody waits for them who does not ask.

Filters are masks, not selections: how many images pass one is then no question that the host must have answered.
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean(values: Tensor, where: Tensor | None = None) -> Tensor:
    """Mean over the batch (dim 0), or over the images that a mask (B,) chooses; 0 if it chooses none."""
    if where is None:
        return values.mean(dim=0)
    mask = where.view(-1, *[1] * (values.ndim - 1))
    return torch.where(mask, values, 0).sum(dim=0) / count(where).clamp_min(1)


def count(where: Tensor) -> Tensor:
    """How many images a mask chooses."""
    return where.sum()


def unset(like: Tensor) -> Tensor:
    """A moving average, of something that is never negative, before it has seen anything."""
    return torch.full_like(like, -1.0, requires_grad=False)


def has_begun(average: Tensor) -> Tensor:
    """Whether a moving average has seen anything."""
    return (average >= 0).all()


@torch.no_grad()
def follow(average: Tensor, new: Tensor, momentum: float, when: Tensor) -> None:
    """Let a moving average take in a new value, in place, where a flag on the device says so."""
    taken = torch.where(has_begun(average), momentum * average + (1 - momentum) * new, new)
    average.copy_(torch.where(when, taken, average))
