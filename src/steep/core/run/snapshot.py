"""A mark: the state as it was before a step, so that the step can be undone exactly.

Taking one must cost next to nothing, since it happens before every step: tensors are copied in one piece per device and
dtype, large memories copy only what the step overwrites, and what lives on the host is kept by reference. The two
halves are apart, since a captured graph can repeat the one and not the other.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steep.core.classifier import FLEETING, Classifier
from steep.core.method import State


class DeviceSnapshot:
    """The tensors of a state at one moment."""

    @torch.no_grad()
    def __init__(self, state: State) -> None:
        self.tensors = tensors(state)
        self.flat = _flat(self.tensors)
        self.places = state.model.places()

    @torch.no_grad()
    def revert(self) -> None:
        """Put every tensor back."""
        for group, copy in self.flat.items():
            _spread(copy, _group(self.tensors, group))
        for held, name, tensor in self.places:
            held[name] = tensor  # a forward may have put another in its place

    @torch.no_grad()
    def revert_where(self, bad: Tensor, state: State) -> bool:
        """Undo it on the device, where a flag there says so. False if the state has changed its shape meanwhile."""
        now = tensors(state)
        if [t.shape for t in now] != [t.shape for t in self.tensors]:
            return False
        for group, copy in self.flat.items():
            if group[0] == bad.device:
                here = _group(now, group)
                _spread(torch.where(bad, copy, torch.cat([_line(t) for t in here])), here)
        for value in state.parts().values():
            if hasattr(value, "revert_where"):
                value.revert_where(bad)
        return True

    @torch.no_grad()
    def moved(self, state: State) -> tuple[Tensor, Tensor]:
        """How far parameters and statistics have moved since, and how long they were: two numbers on the device."""
        lengths = []
        steady = [t for name, t in state.model.moving().items() if not name.startswith(FLEETING)]
        for group, after in _flat([t for t in steady if t.is_floating_point()]).items():
            before = self.flat[group][: len(after)]  # the model's steady tensors come first in their group
            # what stays put has not moved, be it infinite: an attention mask, say
            same = (after == before) | (after.isnan() & before.isnan())
            step = torch.where(same, 0.0, after - before).double().norm()
            whole = torch.where(before.isfinite(), before, 0.0).double().norm()
            lengths.append(torch.stack([step, whole]).to(state.model.anchor().device))
        total = torch.stack(lengths).norm(dim=0)
        return total[0], total[1]


class HostSnapshot:
    """What of a state lives on the host: generators, counters, the settings of an optimiser."""

    def __init__(self, state: State) -> None:
        parts = state.parts()
        self.kept = {name: _host(value) for name, value in parts.items()}
        self.empty = all(map(_on_device, parts.values()))

    @torch.no_grad()
    def revert(self, state: State) -> None:
        """Undo what happened on the host since."""
        for name, saved in self.kept.items():
            value = getattr(state, name)
            if isinstance(value, torch.optim.Optimizer):
                value.state.clear()
                value.state.update({parameter: dict(kept) for parameter, kept in saved[0].items()})
                for settings, kept in zip(value.param_groups, saved[1], strict=True):
                    settings.update(kept)
            elif isinstance(value, torch.Generator):
                value.set_state(saved)
            elif hasattr(value, "revert"):
                value.revert(saved)
            elif hasattr(value, "restore"):
                if not isinstance(value, Classifier):
                    value.restore(saved)
            else:
                setattr(state, name, saved)
        state.model.forget_gradients()


def tensors(state: State) -> list[Tensor]:
    """Every tensor of a state that a step may write to, those of the model first."""
    found = list(state.model.moving().values())
    for value in state.parts().values():
        if isinstance(value, torch.optim.Optimizer):
            found += [t for kept in value.state.values() for t in kept.values() if isinstance(t, Tensor)]
        elif isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list):
            found += [t for t in value if isinstance(t, Tensor)]
    return found


def _host(value: Any) -> Any:
    """What of a field is not in its tensors."""
    if isinstance(value, torch.optim.Optimizer):
        settings = [{k: v for k, v in group.items() if k != "params"} for group in value.param_groups]
        return {parameter: dict(kept) for parameter, kept in value.state.items()}, settings
    if isinstance(value, torch.Generator):
        return value.get_state()
    if hasattr(value, "mark"):
        return value.mark()
    if hasattr(value, "snapshot"):
        return None if isinstance(value, Classifier) else value.snapshot()
    return list(value) if isinstance(value, list) else value


def _on_device(value: Any) -> bool:
    """Whether undoing a field's tensors on the device undoes all of it."""
    if isinstance(value, torch.optim.Optimizer):
        return all(isinstance(t, Tensor) for kept in value.state.values() for t in kept.values())
    if isinstance(value, list):
        return all(isinstance(t, Tensor) for t in value)
    return isinstance(value, (Classifier, Tensor))


Group = tuple[torch.device, torch.dtype]


def _flat(tensors: list[Tensor]) -> dict[Group, Tensor]:
    groups: dict[Group, list[Tensor]] = {}
    for t in tensors:
        groups.setdefault((t.device, t.dtype), []).append(_line(t))
    return {group: torch.cat(members) for group, members in groups.items()}


def _line(t: Tensor) -> Tensor:
    return t if t.ndim == 1 else t.reshape(-1)


def _group(tensors: list[Tensor], group: Group) -> list[Tensor]:
    return [t for t in tensors if (t.device, t.dtype) == group]


def _spread(flat: Tensor, into: list[Tensor]) -> None:
    pieces = flat.split_with_sizes([t.numel() for t in into])
    torch._foreach_copy_(into, [piece.view(t.shape) for piece, t in zip(pieces, into, strict=True)])
