"""What every metric asks of its input, checked once and in one voice."""

from __future__ import annotations

import torch
from torch import Tensor

from steep.errors import InputError

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_tensor(name: str, value: object) -> None:
    """Refuse what is no tensor with values: an array or a list is one `torch.as_tensor` away.

    >>> check_tensor("labels", [0, 1])
    Traceback (most recent call last):
    steep.errors.InputError: labels: expected a torch.Tensor, got list. Give torch.as_tensor(labels)
    """
    if not isinstance(value, Tensor):
        raise InputError(f"{name}: expected a torch.Tensor, got {type(value).__name__}. Give torch.as_tensor({name})")
    if value.is_meta or value.layout is not torch.strided:
        raise InputError(f"{name}: expected a dense tensor with values, got {value.layout} on {value.device}")


def are_answers(logits: Tensor) -> Tensor:
    """Say which rows of logits, (N,), hold an answer: −inf beside a finite one rules a class out, NaN and inf spoil it.

    >>> are_answers(torch.tensor([[1.0, -torch.inf], [1.0, torch.nan], [torch.inf, 0.0]]))
    tensor([ True, False, False])
    """
    return logits.amax(dim=1).isfinite()


def check_predictions(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (N, K) in float64 and labels (N,) in int64, or say what is wrong with them.

    >>> import torch
    >>> check_predictions(torch.zeros(2, 10), torch.tensor([3, 10]))
    Traceback (most recent call last):
    steep.errors.InputError: labels: expected classes 0 to 9, got 3 to 10
    """
    check_tensor("logits", logits)
    check_tensor("labels", labels)
    if logits.ndim != 2 or logits.shape[0] < 1 or logits.shape[1] < 2 or not logits.is_floating_point():
        raise InputError(
            f"logits: expected floating point (N, K) with N ≥ 1 and K ≥ 2, got {tuple(logits.shape)} {logits.dtype}"
        )
    if tuple(labels.shape) != (len(logits),) or labels.dtype not in _WHOLE:
        raise InputError(
            f"labels: expected whole numbers ({len(logits)},), one per row of logits, "
            f"got {tuple(labels.shape)} {labels.dtype}"
        )
    bad = int((~are_answers(logits)).sum())
    if bad:
        raise InputError(f"logits: expected finite numbers, got NaN or infinity in {bad} of {len(logits)} rows")
    low, high, classes = int(labels.min()), int(labels.max()), logits.shape[1]
    if low < 0 or high >= classes:
        raise InputError(f"labels: expected classes 0 to {classes - 1}, got {low} to {high}")
    # float64: a sum over a whole benchmark must not depend on how it was batched.
    return logits.detach().double(), labels.to(logits.device).long()
