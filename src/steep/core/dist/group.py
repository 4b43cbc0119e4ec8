"""Several processes adapt as one: each answers its part of the batch, all end with the same parameters.

Every rank (a process of the group) computes the loss of the whole batch, from sums over all ranks, and its own part of
the gradient; the gradient is the mean over ranks. That is exact because a sum over ranks has a sum over ranks as its
gradient, here and in BatchNorm statistics (`sync_batchnorm.py`), and it leaves a term that every rank computes alike,
such as a penalty on parameters, as it is.

During a batch a `Scope` is in effect. Methods do not see it: they use `core/batch.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from steep.errors import GroupError, InputError, SteepError

T = TypeVar("T")

TIMEOUT = 60.0  # seconds a rank waits for the others; one that dies is noticed at once by gloo, by this at the latest

Distributed: TypeAlias = "bool | dist.ProcessGroup | Group"
"""Whether to adapt together with other ranks: False, True for all of them, a process group, or a `Group`."""

_groups: dict[tuple[Any, bool], Group] = {}


class Group:
    """Ranks that adapt together.

    Without a process group of the caller's they are all ranks there are, over connections of their own: neither the
    caller's traffic nor its timeout matters. One that is given is used as it is, timeout included, and is closed after
    an error in the middle of a batch. Every rank makes its own `Group`, at the same point of the program.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None, *, timeout: float = TIMEOUT) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise InputError(
                "distributed: expected torch.distributed to be initialised, got none. "
                "Start with torchrun and call torch.distributed.init_process_group() first"
            )
        self._parent: Any = dist.group.WORLD if process_group is None else process_group
        if not isinstance(self._parent, dist.ProcessGroup):
            raise InputError("distributed: expected a process group that this process is in")
        self.rank, self.size = dist.get_rank(self._parent), dist.get_world_size(self._parent)
        kinds = dist.get_backend_config(self._parent)
        self._left = False
        if process_group is None:
            kind = "cpu:gloo,cuda:nccl" if "nccl" in kinds else "gloo"
            self._ranks: Any = self._wait_for(lambda: dist.new_group(timeout=timedelta(seconds=timeout), backend=kind))
        elif "gloo" in kinds:
            self._ranks = process_group
        else:  # counts and errors go between processors: the device need not wait for them
            raise InputError(
                f"distributed: expected a process group with gloo for the CPU too, got {kinds}. Make it "
                "with torch.distributed.new_group(ranks, backend='cpu:gloo,cuda:nccl')"
            )

    def sum_(self, values: Tensor) -> Tensor:
        """Replace values by their sum over ranks, the same bits on each of them."""
        self._wait_for(lambda: dist.all_reduce(values, group=self._ranks))
        return values

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its mean over ranks, all of them in one piece."""
        for dtype in sorted({t.dtype for t in tensors}, key=str):
            same = [t for t in tensors if t.dtype == dtype]
            flat = self.sum_(torch.cat([t.reshape(-1) for t in same])).div_(self.size)
            pieces = flat.split_with_sizes([t.numel() for t in same])
            torch._foreach_copy_(same, [piece.view(t.shape) for piece, t in zip(pieces, same, strict=True)])

    def part(self, n: int) -> slice:
        """Which of n things are this rank's, where they are dealt out evenly."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def parts(self, n: int) -> list[int]:
        """How many of n things each rank has, where they are dealt out evenly."""
        return [(rank + 1) * n // self.size - rank * n // self.size for rank in range(self.size)]

    def gather(self, values: Tensor, counts: Sequence[int]) -> Tensor:
        """Put the values (n, ...) of all ranks behind each other; `counts` says how many each has."""
        most = max(counts)
        padded = values.new_zeros((most, *values.shape[1:]))
        padded[: len(values)] = values.detach()
        parts = [torch.empty_like(padded) for _ in counts]
        self._wait_for(lambda: dist.all_gather(parts, padded, group=self._ranks))
        return torch.cat([part[:n] for part, n in zip(parts, counts, strict=True)])

    def exchange(self, words: Sequence[int]) -> list[list[int]]:
        """Send the others a few whole numbers, between processors; return those of each rank."""
        row = torch.tensor(words, dtype=torch.int64)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        self._wait_for(lambda: dist.all_gather(rows, row, group=self._ranks))
        return [each.tolist() for each in rows]

    def exchange_text(self, text: str, most: int = 2000) -> list[str]:
        """Send the others a text; return that of each rank."""
        words = list(text.encode()[:most].ljust(most, b"\0"))
        return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in self.exchange(words)]

    def _wait_for(self, work: Callable[[], T]) -> T:
        """Do what needs the other ranks, or raise if they are gone."""
        if self._left:
            raise GroupError(_LEFT)
        try:
            return work()
        except RuntimeError as error:
            raise GroupError(
                f"rank {self.rank} of {self.size} has lost the others: one of them has died or raised an error (look "
                "there first), or kept the rest waiting for too long. Start all ranks again, from saved states if "
                f"there are any: steep.resume(path, model, distributed=True). ({error})"
            ) from error

    @contextlib.contextmanager
    def in_step(self) -> Iterator[None]:
        """Whoever fails in here in a way that the others cannot know of leaves the group: they then fail at once."""
        try:
            yield
        except BaseException as error:
            # errors of steep's own come from what all ranks know, and all raise them
            if isinstance(error, GroupError) or not isinstance(error, SteepError):
                self.leave()
            raise

    def leave(self) -> None:
        """Close the connections: whoever waits for this rank fails at once."""
        self._left = True
        for key in [key for key, group in _groups.items() if group is self]:
            del _groups[key]
        ranks, self._ranks = self._ranks, None
        if ranks is None:  # has left before; torch would take None for all groups there are
            return
        with contextlib.suppress(Exception):
            if hasattr(ranks, "abort"):
                ranks.abort()  # nccl: kernels that still wait for the others
            dist.destroy_process_group(ranks)

    def __deepcopy__(self, _: Any) -> Group:
        return self

    def __getstate__(self) -> Any:
        raise InputError("an adapter in a group cannot be pickled: its connections are of this process. Use save()")


_LEFT = (
    "this rank has left its group after an error in the middle of a batch. Make a new adapter on every rank, from "
    "saved states if there are any: steep.resume(path, model, distributed=True)"
)


def join(distributed: Distributed) -> Group | None:
    """Find the group that an adapter is to work in; adapters of one process group share it."""
    if distributed is False:
        return None
    if isinstance(distributed, Group):
        return distributed
    process_group = None if distributed is True else distributed
    key = dist.group.WORLD if process_group is None else process_group, process_group is None
    if key not in _groups:
        _groups[key] = Group(process_group)
    return _groups[key]


@dataclass(frozen=True)
class Scope:
    """What is in effect while a batch is adapted on together."""

    group: Group
    counts: tuple[int, ...]  # test images of each rank
    blank: bool = False  # what passes through the model is a stand-in of a rank that has no image: count nothing


SCOPE: ContextVar[Scope | None] = ContextVar("steep_scope", default=None)
"""The scope in effect; None where a process adapts alone. Read by `core/batch.py` and the BatchNorm hook only."""


@contextlib.contextmanager
def within(scope: Scope | None) -> Iterator[None]:
    """Put a scope into effect."""
    token = SCOPE.set(scope)
    try:
        yield
    finally:
        SCOPE.reset(token)


def blank() -> contextlib.AbstractContextManager[None]:
    """Inside, what passes through the model counts nothing on this rank."""
    scope = SCOPE.get()
    return within(None if scope is None else replace(scope, blank=True))


class Total(torch.autograd.Function):
    """Sum over ranks, whose gradient is a sum over ranks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        """Sum."""
        ctx.group = group
        return group.sum_(values.detach().clone())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Sum of gradients: every rank's loss depends on this rank's values."""
        return ctx.group.sum_(grads[0].clone(memory_format=torch.contiguous_format)), None
