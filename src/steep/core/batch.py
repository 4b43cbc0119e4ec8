"""Batch reductions that never synchronise with the host.

Filters are masks, not selections, so the host need not know how many images pass one.
Where several ranks each hold a part of the batch (`core/dist/`), the numbers are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from steep.core.dist.group import SCOPE, Total, within


def mean(values: Tensor, where: Tensor | None = None) -> Tensor:
    """Mean over the batch (dim 0), or over the images that a mask (B,) chooses; 0 if it chooses none."""
    alone = SCOPE.get() is None
    if where is None and alone:
        return values.mean(dim=0)
    if where is not None:
        values = torch.where(where.view(-1, *[1] * (values.ndim - 1)), values, 0)
    sums = values.sum(dim=0)
    if alone:
        return sums / count(where).clamp_min(1)  # type: ignore[arg-type]
    chosen = values.new_full((1,), len(values)) if where is None else where.sum().to(values.dtype)[None]
    both = total(torch.cat([sums.reshape(-1), chosen]))  # one message, not two
    return both[:-1].view(sums.shape) / both[-1].detach().clamp_min(1)


def scaled(values: Tensor) -> Tensor:
    """Shift and stretch the values (B,) of a batch to [0, 1]; all 0 if they are the same."""
    low, high = first(values, size(values)).aminmax()
    return (values - low) / torch.where(high > low, high - low, 1)


def count(where: Tensor) -> Tensor:
    """How many images a mask chooses."""
    return total(where.sum())


def size(x: Tensor) -> int:
    """How many images the batch has."""
    scope = SCOPE.get()
    return len(x) if scope is None else sum(scope.counts)


def first(x: Tensor, n: int) -> Tensor:
    """The first n images of the batch, in the order of ranks; all ranks get them all."""
    scope = SCOPE.get()
    if scope is None or n <= 0:
        return x[: max(0, n)]
    return scope.group.gather(x[:n], [min(n, each) for each in scope.counts])[:n]


def part(values: Tensor) -> Tensor:
    """Of values that every rank has for all images of the batch (random numbers, say), those of this rank's images."""
    scope = SCOPE.get()
    if scope is None:
        return values
    start = sum(scope.counts[: scope.group.rank])
    return values[start : start + scope.counts[scope.group.rank]]


def alone() -> AbstractContextManager[None]:
    """Inside, this rank works by itself: for what concerns one image and no other."""
    return within(None)


@contextmanager
def dealt_out(x: Tensor) -> Iterator[Tensor]:
    """Inside, images that every rank has are the batch, and each rank works on the part of them that it gets."""
    scope = SCOPE.get()
    if scope is None:
        yield x
        return
    with within(replace(scope, counts=tuple(scope.group.parts(len(x))))):
        yield part(x)


def total(sums: Tensor) -> Tensor:
    """What the sums over each rank's images come to for the batch."""
    scope = SCOPE.get()
    if scope is None:
        return sums
    whole: Tensor = Total.apply(sums, scope.group)  # type: ignore[no-untyped-call]
    return whole


def rank_slice(n: int) -> slice:
    """Which of n things that every rank knows (chains, say) this rank works on."""
    scope = SCOPE.get()
    return slice(0, n) if scope is None else scope.group.part(n)


def gather(part: Tensor, n: int) -> Tensor:
    """All n things, from the part that each rank worked on."""
    scope = SCOPE.get()
    return part if scope is None else scope.group.gather(part, scope.group.parts(n))


def average_gradients(params: list[torch.nn.Parameter]) -> None:
    """Each rank has the gradient that its images give; let all have the batch's."""
    scope = SCOPE.get()
    if scope is None:
        return
    for p in params:
        if p.grad is None:  # a layer that the forward did not use: as many numbers on every rank
            p.grad = torch.zeros_like(p)
    scope.group.average_([p.grad for p in params if p.grad is not None])


def spread(chosen: Tensor, where: Tensor) -> Tensor:
    """Give what belongs to the images that a mask chooses its place among all; the others get NaN."""
    if len(chosen) == len(where):
        return chosen
    values = chosen.new_full((len(where), *chosen.shape[1:]), float("nan"))
    values[where] = chosen
    return values


def prior_corrected(logits: Tensor) -> Tensor:
    """Multiply each logit by K · the smoothed mean prediction of its class: all by 1 where the classes are even."""
    prior = mean(logits.softmax(dim=1))
    classes = len(prior)
    smooth = max(1 / max(1, size(logits)), 1 / classes) / prior.max()
    return logits * classes * (prior + smooth) / (1 + smooth * classes)


class MovingAverage:
    """A moving average of something that is never negative. It lives in a tensor of the method's state, in place.

    Until it has taken in a first value the tensor holds −1.
    """

    def __init__(self, value: Tensor, momentum: float) -> None:
        self.value, self.momentum = value, momentum

    @staticmethod
    def unset(like: Tensor) -> Tensor:
        """Make the tensor for an average that has taken in nothing yet."""
        return torch.full_like(like, -1.0, requires_grad=False)

    @property
    def started(self) -> Tensor:
        """Whether it has taken in a value, as a flag on the device."""
        return (self.value >= 0).all()

    @torch.no_grad()
    def update(self, new: Tensor, when: Tensor) -> None:
        """Take in a new value, where a flag on the device says so."""
        mixed = torch.where(self.started, self.momentum * self.value + (1 - self.momentum) * new, new)
        self.value.copy_(torch.where(when, mixed, self.value))

    @torch.no_grad()
    def clear(self, when: Tensor) -> None:
        """Forget everything, where a flag on the device says so."""
        self.value.masked_fill_(when, -1.0)
