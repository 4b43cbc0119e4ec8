"""Other views of the same images, and one answer from the answers to all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

SHIFTS = ((1, 1), (-1, -1))  # by one pixel, down and right, up and left


def mirror(x: Tensor) -> Tensor:
    """Left becomes right."""
    return x.flip(-1)


def with_mirror(x: Tensor, both: bool = True) -> Tensor:
    """(B, C, H, W) → (2B, C, H, W): the images, then their mirror images; the images alone where `both` is False."""
    return torch.cat([x, mirror(x)]) if both else x


def shift(x: Tensor, down: int, right: int) -> Tensor:
    """Move images (B, C, ..., H, W) by pixels; the border is repeated."""
    height, width = x.shape[-2:]
    edges = abs(right), abs(right), abs(down), abs(down)
    wide = pad(x.flatten(0, -4), edges, mode="replicate")
    moved = wide[..., abs(down) - down :, abs(right) - right :][..., :height, :width]
    return moved.reshape(x.shape)


def shifted(x: Tensor) -> list[Tensor]:
    """The mirror image, and both shifted by a pixel along each diagonal: with the image itself six views."""
    both = [x, mirror(x)]
    return both[1:] + [shift(view, *by) for by in SHIFTS for view in both]


VIEWS: dict[str, Callable[[Tensor], list[Tensor]]] = {"mirror": lambda x: [mirror(x)], "shifts": shifted}
"""Name → the views of images besides the images themselves."""


def mean_answer(answers: Sequence[Tensor]) -> Tensor:
    """Logits (B, K) whose probabilities are the mean of the answers' probabilities, and whose energy is their mean.

    >>> two = mean_answer([torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]])])
    >>> two.softmax(1)
    tensor([[0.5000, 0.5000]])
    """
    logits = torch.stack(list(answers))  # (V, B, K)
    log_mean = logits.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(logits))  # finite where a probability is tiny
    return log_mean + logits.logsumexp(dim=2).mean(dim=0)[:, None]
