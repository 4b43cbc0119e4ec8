"""One step, done and judged on the device: what is noted of it, and how it is undone."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from torch import Tensor

from steep.core.method import State, Step
from steep.core.run.graph import Recording
from steep.core.run.snapshot import DeviceSnapshot, HostSnapshot

REASONS = (
    "the loss is not finite",
    "the logits are not finite",
    "the parameters are not finite",
    "the update is out of proportion",
)
NOT_FINITE = slice(0, 3)  # of REASONS


class Before(NamedTuple):
    """What was on the device before a step."""

    tensors: DeviceSnapshot
    guard: Tensor  # the guard's numbers, and ...
    numbers: Tensor  # ... a copy of them

    def revert(self) -> None:
        """Undo the step, and that it was judged."""
        self.tensors.revert()
        self.guard.copy_(self.numbers)

    def clone(self) -> Self:
        """Copy what the next replay of a recording overwrites."""
        return self._replace(tensors=self.tensors.clone(), numbers=self.numbers.clone())


class Replay(NamedTuple):
    """A step that is repeated from a recording, if the interrupt did not come before it."""

    recording: Recording
    launched: int  # how often it was, before

    def revert(self) -> None:
        """Undo the step, and that it was judged."""
        if self.recording.done_since(self.launched):
            self.recording.result.before.revert()


class Attempt(NamedTuple):
    """One step, done and judged on the device."""

    step: Step
    before: Before | None = None
    verdict: Tensor | None = None  # a flag for each of REASONS; None if there is nothing to judge
    undone: bool = False  # whether tensors were put right on the device, where the verdict says so

    def finish_undoing(self, host: HostSnapshot, state: State) -> None:
        """Undo what of the step has not been undone on the device."""
        if self.before is not None and not self.undone:
            self.before.tensors.revert()
        host.revert(state)

    def clone(self) -> Self:
        """Copy what the step reports, which the next replay of its recording overwrites."""
        copies: dict[str, Any] = {k: v.clone() for k, v in self.step._asdict().items() if isinstance(v, Tensor)}
        verdict = None if self.verdict is None else self.verdict.clone()
        return self._replace(step=self.step._replace(**copies), verdict=verdict)
