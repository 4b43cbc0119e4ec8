"""Check a saved state against the state it is to replace, before anything is taken over.

A file may be damaged or made by somebody else: an optimiser that is given a tensor of another shape writes out of
bounds. So every leaf must have the kind and the shape that the method itself made; another floating-point type is
cast when it is copied. Only what is made at the first batch (None, or an empty list, until then) may be any tensor or
number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from steep.core.classifier import FLEETING, Classifier
from steep.errors import CheckpointError

HOW_TO_COMPUTE = ("fused", "foreach", "capturable")
"""Settings of an optimiser that the device decides, not the file."""


def check_field(where: str, current: Any, saved: Any) -> None:
    """Refuse what was saved of a state's field if it cannot take the place of what the field holds now."""
    if isinstance(current, Classifier):
        _check_model(where, current.moving(), saved)
    elif isinstance(current, torch.optim.Optimizer):
        _check_optimizer(where, current.state_dict(), saved)
    elif isinstance(current, torch.Generator):
        if not isinstance(saved, Tensor) or saved.dtype != torch.uint8 or saved.ndim != 1 or not len(saved):
            raise _refusal(where, "the state of a random generator", saved)
    elif hasattr(current, "check_saved"):
        current.check_saved(where, saved)
    elif hasattr(current, "restore"):
        if not isinstance(saved, Mapping):
            raise _refusal(where, "what its snapshot() gave", saved)
    elif current is None:  # before the first batch
        values = saved if isinstance(saved, list) else [saved]
        if not all(value is None or isinstance(value, (bool, int, float, str, Tensor)) for value in values):
            raise _refusal(where, "nothing, a number or tensors", saved)
    elif current == []:
        if not isinstance(saved, list) or not all(isinstance(value, Tensor) for value in saved):
            raise _refusal(where, "tensors", saved)
    else:
        _check_leaf(where, current, saved)


def _check_model(where: str, current: Mapping[str, Tensor], saved: Any) -> None:
    if not isinstance(saved, Mapping) or not all(isinstance(t, Tensor) for t in saved.values()):
        raise _refusal(where, "tensors by name", saved)
    steady = {name for name in current.keys() | saved.keys() if not name.startswith(FLEETING)}
    for name in sorted(steady):
        if name not in saved or name not in current:
            raise CheckpointError(f"state: {where}: of another model or setting: {name} is on one side only")
        if not _fits(current[name], saved[name]):
            raise _refusal(f"{where}.{name}", _words(current[name]), saved[name])


def _check_optimizer(where: str, current: Mapping[str, Any], saved: Any) -> None:
    """Compare tensors by shape; settings that are numbers may have moved, as a rate with a schedule, others may not."""
    if not isinstance(saved, Mapping) or set(saved) != set(current):
        raise _refusal(where, f"the keys {sorted(current)}", saved)
    _check_leaf(f"{where}.state", current["state"], saved["state"])
    groups, others = current["param_groups"], saved["param_groups"]
    if not isinstance(others, list) or len(others) != len(groups):
        raise _refusal(f"{where}.param_groups", f"{len(groups)} tables", others)
    for group, other in zip(groups, others, strict=True):
        if not isinstance(other, Mapping) or set(other) != set(group):
            raise _refusal(f"{where}.param_groups", f"the keys {sorted(group)}", other)
        for name in group.keys() - {*HOW_TO_COMPUTE}:
            may_move = name != "params" and _same_numbers(group[name], other[name])
            if other[name] != group[name] and not may_move:
                raise _refusal(f"{where}.param_groups.{name}", repr(group[name]), other[name])


def _same_numbers(*values: Any) -> bool:
    """Whether settings are as many finite numbers from 0 on as each other: one, or two as Adam's betas are."""
    rows = [value if isinstance(value, (list, tuple)) else [value] for value in values]
    numbers = (type(value) in (int, float) and 0 <= value < math.inf for row in rows for value in row)
    return len({len(row) for row in rows}) == 1 and all(numbers)


def _check_leaf(where: str, current: Any, saved: Any) -> None:
    """Compare nested plain data, leaf by leaf."""
    if isinstance(current, Mapping):
        if not isinstance(saved, Mapping) or set(saved) != set(current):
            raise _refusal(where, f"the keys {sorted(map(str, current))}", saved)
        for key, value in current.items():
            _check_leaf(f"{where}.{key}", value, saved[key])
    elif isinstance(current, (list, tuple)):
        if not isinstance(saved, (list, tuple)) or len(saved) != len(current):
            raise _refusal(where, f"{len(current)} values", saved)
        for index, value in enumerate(current):
            _check_leaf(f"{where}.{index}", value, saved[index])
    elif isinstance(current, Tensor):
        if not isinstance(saved, Tensor) or not _fits(current, saved):
            raise _refusal(where, _words(current), saved)
    elif isinstance(current, bool) or isinstance(saved, bool):
        if type(saved) is not type(current) and current is not None:
            raise _refusal(where, repr(current), saved)
    elif isinstance(current, (int, float)):
        if not isinstance(saved, (int, float)) or not math.isfinite(saved):
            raise _refusal(where, "a finite number", saved)
        if type(saved) is not type(current):
            raise _refusal(where, "a whole number" if isinstance(current, int) else "a number such as 1.0", saved)
    elif current is not None and type(saved) is not type(current):
        raise _refusal(where, f"a {type(current).__name__}", saved)


def check_new_tensor(where: str, shape: tuple[str, ...], saved: Any, lengths: dict[str, int]) -> None:
    """Refuse what cannot be a tensor that the first batch makes; `lengths` are the numbers that letters stand for."""
    if saved is None:
        return
    words = f"nothing or a tensor ({', '.join(shape)})"
    if not isinstance(saved, Tensor) or saved.layout != torch.strided or saved.ndim != len(shape) or not saved.numel():
        raise _refusal(where, words, saved)
    if any(lengths.setdefault(letter, length) != length for letter, length in zip(shape, saved.shape, strict=True)):
        raise _refusal(where, f"{words} with {lengths}", saved)
    if saved.isnan().any() or (shape and not saved.is_floating_point()):
        raise _refusal(where, f"{words} of floating point, without NaN", saved)


def _fits(current: Tensor, saved: Tensor) -> bool:
    """Whether one tensor can be copied into the other; a model may be resumed in another floating-point type."""
    same_type = saved.dtype == current.dtype or (saved.is_floating_point() and current.is_floating_point())
    return same_type and saved.shape == current.shape and saved.layout == current.layout


def _refusal(where: str, expected: str, saved: Any) -> CheckpointError:
    words = _words(saved) if isinstance(saved, Tensor) else f"{type(saved).__name__} {saved!r:.60}"
    return CheckpointError(f"state: {where}: expected {expected}, got {words}")


def _words(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}".removeprefix("torch.")
