"""What a method is: frozen hyper-parameters, a state with everything that moves, and one step.

A method is one file:  `init(source) → State`  ·  `step(state, x) → Step`
"""

from __future__ import annotations

import abc
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from steep.core.source import Classifier, Source, copied
from steep.errors import CheckpointError, InputError

Moment = Literal["before", "after"]


class Step(NamedTuple):
    """What one step did. Numbers stay on the device as tensors, so nobody waits for them who does not ask."""

    logits: Tensor  # (B, K) of the forward before the update
    loss: Tensor | None = None
    used: Tensor | int | None = None  # images that took part in the update; None: all of them
    energy_samples: Tensor | None = None  # mean energy of the samples drawn from the model
    moved: bool = True  # False: the model is as before, and so are its predictions
    leap: bool = False  # True: a large move on purpose, such as a return to the source model
    note: str | None = None  # what a reader of the log should know: "no reliable image", "recovered"


@dataclass
class State:
    """Everything of a method that moves. Each field is saved, restored and reset; there is no other memory.

    A field may be a Classifier, an optimiser, a torch.Generator, a tensor, a list of tensors, a number, None, or
    anything else with `snapshot()` and `restore()`.
    """

    model: Classifier

    def snapshot(self) -> dict[str, Any]:
        """Copy every field into plain data that `torch.save` can write."""
        return {field.name: _saved(getattr(self, field.name)) for field in fields(self)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring every field back; what is saved stays untouched and may be restored again."""
        names = {field.name for field in fields(self)}
        if names != set(saved):
            raise CheckpointError(f"method state: expected the fields {sorted(names)}, got {sorted(saved)}")
        device = self.model.anchor().device
        for name in sorted(names, key="model".__eq__):  # the model last: it alone can refuse
            setattr(self, name, _restored(getattr(self, name), saved[name], device))


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
    if hasattr(current, "restore"):
        current.restore(saved)
    elif isinstance(current, torch.optim.Optimizer):
        current.load_state_dict(copied(saved))  # torch keeps the tensors it is given
    elif isinstance(current, torch.Generator):
        if saved.shape == current.get_state().shape:
            current.set_state(saved.cpu())
        else:  # from another kind of device, whose stream cannot be continued here: a new one that it determines
            current.manual_seed(zlib.crc32(saved.cpu().numpy().tobytes()))
    elif isinstance(saved, Tensor):
        return saved.detach().clone().to(device)
    else:
        return [_restored(None, v, device) for v in saved] if isinstance(saved, list) else saved
    return current


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC, Generic[S]):
    """A way to adapt: its fields are its hyper-parameters, its docstring names its paper.

    >>> from steep.methods import METHODS
    >>> METHODS["tent"](lr=1e-4)
    Tent(lr=0.0001, params='norm', statistics='batch')
    """

    def __post_init__(self) -> None:
        """Refuse a rate that cannot be one. A method with more to check does so here."""
        self.require(lr=getattr(self, "lr", 1.0) > 0)

    def require(self, **right: bool) -> None:
        """Raise for the first hyper-parameter that is not right."""
        for name, is_right in right.items():
            if not is_right:
                raise InputError(f"{self.name}: {name} is out of range, got {getattr(self, name)!r}")

    name: ClassVar[str]
    paper: ClassVar[str]
    predicts: ClassVar[Moment]  # whether its paper answers with the model before or after the update

    @abc.abstractmethod
    def init(self, source: Source) -> S:
        """Configure the source model for this method and make the state it starts from."""

    @abc.abstractmethod
    def step(self, state: S, x: Tensor) -> Step:
        """Adapt once on the images x (B, C, H, W); report the logits of the forward before the update."""

    @torch.no_grad()
    def predict(self, state: S, x: Tensor) -> Tensor:
        """Answer with the model as it is now."""
        logits: Tensor = state.model(x)
        return logits

    @classmethod
    def tuned(cls) -> Self:
        """Give the setting that is fair to the method where TEA's comparison was not; else the default."""
        return cls()
