"""What a method is: frozen hyper-parameters, a state with everything that moves, and one step.

A method is one file:  `init(source) → State`  ·  `step(state, x) → Step`
"""

from __future__ import annotations

import abc
import math
import numbers
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from steep.core.classifier import Classifier, SourceModel, copied
from steep.errors import CheckpointError, InputError

Moment = Literal["before", "after"]


class Step(NamedTuple):
    """What one step did. Numbers stay on the device as tensors, so nobody waits for them who does not ask."""

    logits: Tensor  # (B, K) of the forward before the update
    loss: Tensor | None = None
    used: Tensor | int | None = None  # images that took part in the update; None: all of them
    energy_samples: Tensor | None = None  # mean energy of the samples drawn from the model
    moved: bool = True  # False: the model is as before, and so are its predictions
    leap: Tensor | bool = False  # True: a large move on purpose, such as a return to the source model
    note: str | None = None  # what a reader of the log should know; of a leap on the device, if it happened
    reason_if_unused: str | None = None  # why, if `used` turns out to be 0: "no reliable image"


@dataclass
class State:
    """Everything of a method that moves. Each field is saved, restored and reset; there is no other memory.

    A field may be a Classifier, an optimiser, a torch.Generator, a tensor, a list of tensors, a number, None, or
    anything else with `snapshot()` and `restore()`; and `tensors()`, which lists its tensors, if graphs are to work.
    """

    model: Classifier

    def parts(self) -> dict[str, Any]:
        """Every field by its name, as it is."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def snapshot(self) -> dict[str, Any]:
        """Copy every field into plain data that `torch.save` can write."""
        return {name: _saved(value) for name, value in self.parts().items()}

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring every field back; what is saved stays untouched and may be restored again."""
        parts = self.parts()
        if set(parts) != set(saved):
            raise CheckpointError(f"method state: expected the fields {sorted(parts)}, got {sorted(saved)}")
        device = self.model.anchor().device
        for name in sorted(parts, key="model".__eq__):  # the model last: it alone can refuse
            setattr(self, name, _restored(parts[name], saved[name], device))


def _saved(value: Any) -> Any:
    if hasattr(value, "snapshot"):
        return value.snapshot()
    if isinstance(value, torch.optim.Optimizer):
        return copied(value.state_dict())
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_saved(v) for v in value]
    raise TypeError(f"a state's field cannot be saved: expected what State allows, got {type(value).__name__}")


def _restored(current: Any, saved: Any, device: torch.device) -> Any:
    """Write into the tensors that are there, where they fit: a captured graph knows them by their place."""
    if hasattr(current, "restore"):
        current.restore(saved)
    elif isinstance(current, torch.optim.Optimizer):
        _restore_optimizer(current, saved)
    elif isinstance(current, torch.Generator):
        if saved.shape == current.get_state().shape:
            current.set_state(saved.cpu())
        else:  # from another kind of device, whose stream cannot be continued here: a new one that it determines
            current.manual_seed(zlib.crc32(saved.cpu().numpy().tobytes()))
    elif isinstance(saved, Tensor):
        if not (isinstance(current, Tensor) and current.shape == saved.shape and current.dtype == saved.dtype):
            return saved.detach().clone().to(device)
        current.copy_(saved)
    elif isinstance(saved, list):
        known = current if isinstance(current, list) and len(current) == len(saved) else [None] * len(saved)
        return [_restored(c, v, device) for c, v in zip(known, saved, strict=True)]
    else:
        return saved
    return current


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    how = [{k: v for k, v in g.items() if k in ("fused", "foreach", "capturable")} for g in optimizer.param_groups]
    before = {p: dict(kept) for p, kept in optimizer.state.items()}
    optimizer.load_state_dict(copied(dict(saved)))  # torch keeps the tensors it is given
    for group, mine in zip(optimizer.param_groups, how, strict=True):
        group.update(mine)  # how to compute is the device's matter, not the file's
    for p, kept in before.items():
        for name, tensor in kept.items():
            new = optimizer.state.get(p, {}).get(name)
            if isinstance(tensor, Tensor) and isinstance(new, Tensor) and tensor.shape == new.shape:
                optimizer.state[p][name] = tensor.copy_(new)


def _other_kind(kind: str, value: Any) -> str | None:
    """Say what a field of a kind holds, where the value is nothing like it. A kind not known here may hold anything."""
    kinds = {part.strip() for part in kind.split("|")}
    if value is None and "None" in kinds:
        return None
    if kinds <= {"int", "float", "None"}:
        return None if _is_number(value, whole="float" not in kinds) else f"a number ({kind})"
    if "tuple[float, float]" in kinds:
        pair = isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_is_number, value))
        return None if pair else "two numbers (low, high)"
    if kind == "Params":
        names = isinstance(value, str) or (isinstance(value, Collection) and all(isinstance(v, str) for v in value))
        return None if names else '"norm", "all", layer kinds such as ["norm", "linear"], or a regular expression'
    return None


def _is_number(value: Any, whole: bool = False) -> bool:
    """Whether a value is a number of Python or NumPy: neither a bool nor NaN, which is not itself."""
    right = isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)
    return right and bool(value == value)


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC, Generic[S]):
    """A way to adapt: its fields are its hyper-parameters, its docstring names its paper.

    >>> from steep.methods import METHODS
    >>> METHODS["tent"](lr=1e-4)
    Tent(lr=0.0001, params='norm', statistics='batch')
    """

    def __post_init__(self) -> None:
        """Refuse a rate or a momentum that cannot be one. A method with more to check does so here."""
        lr: Any = getattr(self, "lr", None)
        momentum: Any = getattr(self, "momentum", None)
        rate, share = not _is_number(lr) or 0 < lr < math.inf, not _is_number(momentum) or 0 <= momentum <= 1
        self.require(lr=rate, momentum=share)

    def require(self, **right: bool) -> None:
        """Raise for the first hyper-parameter that is not of the kind its field names, or not right."""
        for field in fields(self):
            value, kind = getattr(self, field.name, None), getattr(field.type, "__name__", str(field.type))
            if field.init and (expected := _other_kind(kind, value)):
                raise InputError(f"{self.name}: {field.name}: expected {expected}, got {value!r}")
        for name, is_right in right.items():
            if not is_right:
                raise InputError(f"{self.name}: {name} is out of range, got {getattr(self, name)!r}")

    name: ClassVar[str]
    paper: ClassVar[str]
    predicts: ClassVar[Moment]  # whether its paper answers with the model before or after the update
    memory_advice: ClassVar[str] = ""  # settings to lower where a GPU is too small: "`chains` or `buffer_size`"

    @abc.abstractmethod
    def init(self, source: SourceModel) -> S:
        """Configure the source model for this method and make the state it starts from."""

    @abc.abstractmethod
    def step(self, state: S, x: Tensor) -> Step:
        """Adapt once on the images x (B, C, H, W); report the logits of the forward before the update."""

    @torch.no_grad()
    def predict(self, state: S, x: Tensor) -> Tensor:
        """Answer with the model as it is now."""
        logits: Tensor = state.model(x)
        return logits

    def repeats(self, state: S) -> bool:
        """Whether every step from now on does the same work on the device, so that it can be recorded as a graph."""
        return True

    @classmethod
    def tuned(cls) -> Self:
        """Give the setting that is fair to the method where TEA's comparison was not; else the default."""
        return cls()
