"""What an adapter changes about torch while it works, and changes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from steep.core.run.failures import is_nondeterminism
from steep.errors import InputError


@contextmanager
def grads() -> Iterator[None]:
    """Take gradients, whatever the caller has switched off around us."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def fresh_casts() -> Iterator[None]:
    """Switch off torch's cache of half-precision weights.

    Under a caller's autocast it keeps the copy of a weight until that context ends, so an adapted weight would answer
    as it was before the update.
    """
    enabled = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)


@contextmanager
def kernels(fastest: bool, deterministic: bool) -> Iterator[None]:
    """Let cuDNN try which kernel is fastest for each new shape, or use only kernels that always give the same bits.

    With `deterministic`, an operation that has no such kernel raises an error that names it.
    """
    kind = "deterministic" if deterministic else "fastest" if fastest else "plain"
    _process.count(kind, 1)
    try:
        yield
    except Exception as error:
        if not (deterministic and is_nondeterminism(error)):
            raise
        raise InputError(f"deterministic=True: an operation of this model cannot be: {error}") from error
    finally:
        _process.count(kind, -1)


class _Process:
    """Torch's settings of kernels, which are those of the whole process, while adapters work in several threads.

    The first adapter that asks for something notes what the caller had set, and the last to leave sets that again.
    While a deterministic adapter works, all use its kernels. An operation that has no deterministic kernel is an error
    only while no other adapter is at work, since those have not asked for it; otherwise torch warns.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside: Counter[str] = Counter()  # adapters at work, by what they ask for
        self.deterministic = self.warns = self.tries = False  # as the caller had it

    def count(self, kind: str, change: int) -> None:
        """Note that one more or one fewer is at work, and set what is right for those that are."""
        with self.lock:
            before = self.inside["deterministic"]
            if not before:
                self.deterministic = torch.are_deterministic_algorithms_enabled()
                self.warns = torch.is_deterministic_algorithms_warn_only_enabled()
                if not self.inside["fastest"]:
                    self.tries = torch.backends.cudnn.benchmark
            asked = before or self.inside["fastest"]
            self.inside[kind] += change
            now, fastest = self.inside["deterministic"], self.inside["fastest"]
            if now:
                strict = self.deterministic and not self.warns
                alone = now == self.inside.total()
                torch.use_deterministic_algorithms(True, warn_only=not (strict or alone))
            elif before:
                torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warns)
            if asked or now or fastest:
                torch.backends.cudnn.benchmark = not now and (self.tries or fastest > 0)


_process = _Process()
