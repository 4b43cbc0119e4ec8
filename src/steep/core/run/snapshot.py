"""The state as it was before a step, so that the step can be undone exactly.

A snapshot is taken before every step, so it must cost next to nothing: tensors are copied in one piece per device and
dtype, a large memory only notes what it overwrites, and what lives on the host is kept by reference. The two halves
are apart because a recorded graph repeats the one and not the other. To undo a step takes both.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import NoneType
from typing import Any, Self

import torch
from torch import Tensor, nn

from steep.core.classifier import FLEETING, Classifier
from steep.core.layers import mixings_of
from steep.core.method import State


class DeviceSnapshot:
    """The values of a state's tensors at one moment."""

    @torch.no_grad()
    def __init__(self, state: State) -> None:
        self.tensors = tensors(state)
        self.flat = _flatten(self.tensors)
        self.journals: list[list[tuple[Tensor, Tensor, Tensor]]] = []
        for value in parts(state).values():
            if hasattr(value, "journal"):
                value.journal = []
                self.journals.append(value.journal)

    @torch.no_grad()
    def revert(self) -> None:
        """Put every value back."""
        for group, values in self.flat.items():
            _fill(_members(self.tensors, group), values)
        for journal in self.journals:
            for tensor, index, before in reversed(journal):
                tensor[index] = before

    @torch.no_grad()
    def revert_where(self, bad: Tensor, state: State) -> bool:
        """Put every value back where a flag on the device says so. False if a tensor has another shape by now."""
        now = tensors(state)
        if [t.shape for t in now] != [t.shape for t in self.tensors]:
            return False
        for group, values in self.flat.items():
            if group[0] == bad.device:
                members = _members(now, group)
                _fill(members, torch.where(bad, values, torch.cat([_line(t) for t in members])))
        for journal in self.journals:
            for tensor, index, before in reversed(journal):
                tensor[index] = torch.where(bad, before, tensor[index])
        return True

    @torch.no_grad()
    def distance(self, state: State) -> tuple[Tensor, Tensor]:
        """How far parameters and statistics have moved since, and how long they were: two numbers on the device."""
        lengths = []
        steady = [t for name, t in state.model.moving().items() if not name.startswith(FLEETING)]
        for group, after in _flatten([t for t in steady if t.is_floating_point()]).items():
            before = self.flat[group][: len(after)]  # the model's steady tensors come first in their group
            # a value that stays put has not moved, even an infinite one: an attention mask, say
            same = (after == before) | (after.isnan() & before.isnan())
            step = torch.where(same, 0.0, after - before).double().norm()
            whole = torch.where(before.isfinite(), before, 0.0).double().norm()
            lengths.append(torch.stack([step, whole]).to(state.model.anchor().device))
        if not lengths:  # of a method that moves a memory alone
            return (torch.zeros((), dtype=torch.float64, device=state.model.anchor().device),) * 2
        total = torch.stack(lengths).norm(dim=0)
        return total[0], total[1]

    def clone(self) -> Self:
        """Copy a recording's snapshot, which the next replay overwrites."""
        twin = copy.copy(self)
        twin.flat = {group: values.clone() for group, values in self.flat.items()}
        twin.journals = [[(t, index.clone(), before.clone()) for t, index, before in each] for each in self.journals]
        return twin


class HostSnapshot:
    """What of a state lives on the host: which tensors it has, generators, counters, the settings of an optimiser."""

    def __init__(self, state: State) -> None:
        self.parts = {name: _host_part(value) for name, value in parts(state).items()}
        self.slots = state.model.slots()

    def still_holds(self, state: State) -> bool:
        """Whether nothing has to be undone on the host, besides the tensors' values on the device."""
        return all(_is_on_device(value) or _is_same(self.parts[name], value) for name, value in parts(state).items())

    def revert(self, state: State) -> None:
        """Undo what happened on the host since."""
        for name, saved in self.parts.items():
            value = getattr(state, name)
            if isinstance(value, torch.optim.Optimizer):
                value.state.clear()
                value.state.update({parameter: dict(entries) for parameter, entries in saved[0].items()})
                for settings, entries in zip(value.param_groups, saved[1], strict=True):
                    settings.update(entries)
            elif isinstance(value, torch.Generator):
                value.set_state(saved)
            elif hasattr(value, "journal"):
                vars(value).update(saved)
            elif hasattr(value, "restore"):
                if not isinstance(value, Classifier):
                    value.restore(saved)
            else:
                setattr(state, name, saved)
        state.model.put_back(self.slots)
        for _, _, tensor in self.slots:
            if isinstance(tensor, nn.Parameter):
                tensor.requires_grad_(True)  # Ctrl-C may come where a method is about to ask for it again
        state.model.forget_gradients()
        for hook in mixings_of(state.model):  # what is asked for within a step ends with it
            hook.release()


@contextmanager
def without_a_trace(state: State) -> Iterator[None]:
    """Inside, anything may happen to the state, and random numbers may be drawn; after, it is as before."""
    device, host = DeviceSnapshot(state), HostSnapshot(state)
    try:
        yield
    finally:
        device.revert()
        host.revert(state)


def parts(state: State) -> dict[str, Any]:
    """Every field of a state by its name."""
    return {field.name: getattr(state, field.name) for field in fields(state)}


def tensors(state: State) -> list[Tensor]:
    """List every tensor of a state that a step may write to, those of the model first."""
    every = list(state.model.moving().values())
    for value in parts(state).values():
        if isinstance(value, torch.optim.Optimizer):
            every += [t for entries in value.state.values() for t in entries.values() if isinstance(t, Tensor)]
        elif isinstance(value, Tensor):
            every.append(value)
        elif isinstance(value, list):
            every += [t for t in value if isinstance(t, Tensor)]
    return every


def _host_part(value: Any) -> Any:
    """Keep what of a field is not in its tensors' values."""
    if isinstance(value, torch.optim.Optimizer):
        settings = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
        return {parameter: dict(entries) for parameter, entries in value.state.items()}, settings
    if isinstance(value, torch.Generator):
        return value.get_state()
    if hasattr(value, "journal"):
        return dict(vars(value))
    if hasattr(value, "snapshot"):
        return None if isinstance(value, Classifier) else value.snapshot()
    return list(value) if isinstance(value, list) else value


def _is_on_device(value: Any) -> bool:
    """Whether undoing a field's tensors on the device undoes all of it."""
    if isinstance(value, torch.optim.Optimizer):
        return all(isinstance(t, Tensor) for entries in value.state.values() for t in entries.values())
    if isinstance(value, list):
        return all(isinstance(t, Tensor) for t in value)
    return isinstance(value, (Classifier, Tensor))


def _is_same(saved: Any, value: Any) -> bool:
    """Whether a plain value, or a list of whatever it may be, is the one that was kept."""
    if isinstance(value, list):
        return len(saved) == len(value) and all(map(operator.is_, saved, value))
    return isinstance(value, (bool, int, float, str, NoneType)) and saved == value


_Group = tuple[torch.device, torch.dtype]


def _flatten(tensors: list[Tensor]) -> dict[_Group, Tensor]:
    groups: dict[_Group, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.device, t.dtype), []).append(_line(t))
    return {group: torch.cat(members) for group, members in groups.items()}


def _line(t: Tensor) -> Tensor:
    return t if t.ndim == 1 else t.reshape(-1)


def _members(tensors: list[Tensor], group: _Group) -> list[Tensor]:
    return [t for t in tensors if (t.device, t.dtype) == group]


def _fill(tensors: list[Tensor], flat: Tensor) -> None:
    pieces = flat.split_with_sizes([t.numel() for t in tensors])
    torch._foreach_copy_(tensors, [piece.view(t.shape) for piece, t in zip(pieces, tensors, strict=True)])
