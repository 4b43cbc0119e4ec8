"""What a method is: frozen hyper-parameters, a state with everything that moves, and one step.

A method is one file:  `init(source) → State`  ·  `step(state, x) → Step`
"""

from __future__ import annotations

import abc
import enum
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from steep.core.classifier import Classifier, copy_tensors
from steep.core.classifier import SourceModel as SourceModel
from steep.core.constraints import normalise_fields
from steep.core.io.saved_state import HOW_TO_COMPUTE, check_field, check_new_tensor
from steep.core.layers import Params as Params
from steep.errors import CheckpointError

Moment = Literal["before", "after"]


class Look(NamedTuple):
    """How charts show a method."""

    colour: str  # such as "#0072B2"
    marker: str  # a shape of Vega-Lite such as "circle"


class Need(enum.Enum):
    """What a method cannot do without, as its page and the tables of methods say it."""

    BATCH_NORM = "BatchNorm"
    SOURCE_IMAGES = "some source images"
    FEATURES = "features before the last layer"
    VIEWS = "augmented views of an image"
    TEACHER = "a second copy of the model"
    SAMPLES = "samples drawn from the model"


class Step(NamedTuple):
    """What one step did. Numbers stay on the device as tensors: only reading them makes the host wait."""

    logits: Tensor  # (B, K) of the forward before the update
    loss: Tensor | None = None
    used: Tensor | int | None = None  # images that took part in the update; None: all of them
    energy_samples: Tensor | None = None  # mean energy of the samples drawn from the model
    moved: bool = True  # False: no parameter has moved, and the answer stands; a note says what else did
    leap: Tensor | bool = False  # True: a large move on purpose, such as a return to the source model
    note: str | None = None  # what a reader of the log should know; of a leap on the device, if it happened
    reason_if_unused: str | None = None  # why `used` is 0, where it is: "no reliable image"
    answered_by: str | None = None  # whose answer it is, where the guard has found a better one than the method's


def made_later(*shape: str) -> Any:
    """Declare a state's tensor that the first batch makes: one letter stands for one number in all of the state."""
    return field(default=None, metadata={"shape": shape})


@dataclass
class State:
    """Everything of a method that moves. Each field is saved, restored and reset; there is no other memory.

    A field may be a Classifier, an optimiser, a torch.Generator, a tensor, a list of tensors, a number, None, or a
    memory: anything with `snapshot()` and `restore()`. For graphs a memory lists its tensors in `tensors()`. One that
    is too large to be copied before every step has a `journal`: unless that is None, it appends (tensor, index,
    tensor[index]) before it writes to tensor[index], and `restore()` puts other tensors in place of its own.
    """

    model: Classifier

    def _parts(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def snapshot(self) -> dict[str, Any]:
        """Copy every field into plain data that `torch.save` can write."""
        return {name: _saved(value) for name, value in self._parts().items()}

    def check(self, saved: Any, initial: Mapping[str, Any]) -> None:
        """Refuse a snapshot from a file that does not fit, with nothing changed. `initial` is one from the start."""
        now = self._parts()
        if not isinstance(saved, Mapping) or set(now) != set(saved):
            names = sorted(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__
            raise CheckpointError(f"state: expected the fields {sorted(now)}, got {names}")
        lengths: dict[str, int] = {}
        for each in fields(self):
            if "shape" in each.metadata:
                check_new_tensor(each.name, each.metadata["shape"], saved[each.name], lengths)
        for name, value in now.items():
            if initial[name] is not None and initial[name] != []:
                check_field(name, value, saved[name])
            elif initial[name] == [] or saved[name] is not None:  # made at the first batch; a list may be of any length
                check_field(name, initial[name], saved[name])

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring every field back; what is saved stays untouched and may be restored again."""
        now, device = self._parts(), self.model.anchor().device
        for name in sorted(now, key="model".__eq__):  # the model last: it alone can refuse
            setattr(self, name, _restored(now[name], saved[name], device))


def _saved(value: Any) -> Any:
    if hasattr(value, "snapshot"):
        return value.snapshot()
    if isinstance(value, torch.optim.Optimizer):
        return copy_tensors(value.state_dict())
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
        if not (isinstance(current, Tensor) and current.shape == saved.shape):
            return saved.detach().clone().to(device)
        current.copy_(saved)
    elif isinstance(saved, list):
        known = current if isinstance(current, list) and len(current) == len(saved) else [None] * len(saved)
        return [_restored(c, v, device) for c, v in zip(known, saved, strict=True)]
    else:
        return saved
    return current


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    how = [{k: v for k, v in g.items() if k in HOW_TO_COMPUTE} for g in optimizer.param_groups]
    before = {p: dict(entries) for p, entries in optimizer.state.items()}
    optimizer.load_state_dict(copy_tensors(dict(saved)))  # torch keeps the tensors that it gets
    for group, settings in zip(optimizer.param_groups, how, strict=True):
        group.update(settings)  # how to compute depends on this device, not on the file
    for p, entries in before.items():
        for name, tensor in entries.items():
            new = optimizer.state.get(p, {}).get(name)
            if isinstance(tensor, Tensor) and isinstance(new, Tensor) and tensor.shape == new.shape:
                optimizer.state[p][name] = tensor.copy_(new)


def backward_passes(params: Params) -> float:
    """Say what a backward pass costs, in forward passes: to normalisation parameters about one, to all weights two.

    >>> backward_passes("norm"), backward_passes("all"), backward_passes(("norm", "conv"))
    (1.0, 2.0, 2.0)
    """
    return 2.0 if params == "all" or (not isinstance(params, str) and "conv" in params) else 1.0


S = TypeVar("S", bound=State)


@dataclass(frozen=True, kw_only=True)
class Method(abc.ABC, Generic[S]):
    """A way to adapt: its fields are its hyper-parameters, its docstring names its paper.

    >>> from steep.methods import METHODS
    >>> METHODS["tent"](lr=1e-4)
    Tent(lr=0.0001, optimizer='adam', params='norm', statistics='batch', loss='entropy')
    """

    name: ClassVar[str]
    paper: ClassVar[str]  # "Authors, title, year, arXiv:number"; "–" where there is none
    predicts: ClassVar[Moment]  # whether its paper answers with the model before or after the update
    memory_advice: ClassVar[str] = ""  # settings to lower where a GPU is too small: "`chains` or `buffer_size`"
    needs: ClassVar[frozenset[Need]] = frozenset()
    moves: ClassVar[bool] = True  # False: no step changes the model, so an answer after it costs no further pass
    baseline: ClassVar[bool] = False  # True: it is the model as it came, which others are compared with
    enough: ClassVar[int] = 50  # images that a step should have; with guard="recover" smaller batches wait for the next
    look: ClassVar[Look | None] = None  # in charts; None: chosen by the name
    equation: ClassVar[str] = ""  # for documentation

    def __post_init__(self) -> None:
        """Bring every hyper-parameter to its stored form, and refuse one that breaks its constraint."""
        normalise_fields(self, where=f"{self.name}: ")

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

    def passes(self, batch_size: int, images: int) -> float:
        """Count the forward passes that one step costs for each image of a stream of so many. A dry run reads this.

        Where the method says nothing else, it is one forward, and one backward to its `params` if it has that field.
        """
        return 1 + (backward_passes(self.params) if hasattr(self, "params") else 0.0)

    def answer_passes(self) -> float:
        """Count the forward passes for each image of an answer alone, without a step."""
        return 1.0

    def repeats(self, state: S, x: Tensor) -> bool:
        """Whether a step on such images does on the device what the last one did, so that a graph can repeat it."""
        return True

    @classmethod
    def tuned(cls) -> Self:
        """Give the setting that is fair to the method where TEA's comparison was not; else the default."""
        return cls()
