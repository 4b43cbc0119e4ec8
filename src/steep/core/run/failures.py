"""Which errors of a step can be survived. Torch tells some kinds by the text alone: only this module reads it."""

from __future__ import annotations

import torch

from steep.errors import SteepError


def must_propagate(error: Exception, *, alone: bool) -> bool:
    """Whether an error is not to be survived by answering without a step.

    Steep's own errors name something to mend, as does an operation that deterministic=True rules out; a full GPU is
    answered in pieces; after a failure of the device nothing works; other ranks cannot know that this one raised.
    """
    for_caller = isinstance(error, (SteepError, torch.cuda.OutOfMemoryError)) or not alone
    broken = isinstance(error, getattr(torch, "AcceleratorError", ())) or "CUDA error" in str(error)  # since 2.8
    return for_caller or broken or is_nondeterminism(error)


def is_nondeterminism(error: Exception) -> bool:
    """Whether an operation was refused because it has no deterministic form."""
    return torch.are_deterministic_algorithms_enabled() and "deterministic" in str(error)
