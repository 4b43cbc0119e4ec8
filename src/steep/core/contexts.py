"""What an adapter changes about torch while it works, and changes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from steep.errors import InputError


@contextmanager
def grads() -> Iterator[None]:
    """Take gradients, whatever the caller has switched off around us."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def fresh_casts() -> Iterator[None]:
    """Under a caller's autocast, torch keeps the half-precision copy of a weight until the context ends.

    An adapted weight would then be answered with as it was before the update.
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
    """Let cuDNN try which kernel is fastest for each new shape, or take only those that always give the same bits."""
    if deterministic:
        with _bit_for_bit():
            yield
        return
    tries = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = tries or fastest
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = tries


@contextmanager
def _bit_for_bit() -> Iterator[None]:
    """Say which operation cannot be deterministic, if one cannot."""
    enabled = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    tries = torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    except Exception as error:
        if "deterministic" not in str(error):
            raise
        raise InputError(f"deterministic=True: an operation of this model cannot be: {error}") from error
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        torch.backends.cudnn.benchmark = tries
