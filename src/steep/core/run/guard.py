"""The guard: a step that would harm the model is undone, exactly, and the stream goes on.

A step is harmful when its loss, logits or the parameters it leads to are not finite, when its update is out of
proportion to the recent ones, or when it raises half-way: then the model answers as it was. On a GPU tensors are put
right on the device at once and the host does not wait for the verdict: it reads it when somebody looks or, where
something lives on the host (a generator, say), before the next step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steep.core.batch import total
from steep.core.dist.group import SCOPE
from steep.core.method import Method, State, Step
from steep.core.run.graph import Work
from steep.core.run.snapshot import DeviceSnapshot, HostSnapshot
from steep.errors import GuardError, InputError, SteepError, SteepWarning

MODES = ("skip", "recover", "raise", "off")
PROPORTION = 10.0  # times the usual length of an update ...
LEAST = 1e-3  # ... and that at least this share of the length of the parameters: quiet data must not freeze the model
PATIENCE = 5  # updates in a row that are out of proportion to the old ones: then they are the new usual
WARMUP = 10  # healthy updates before "usual" means anything: an optimiser's first ones are unlike the later

REASONS = (
    "the loss is not finite",
    "the logits are not finite",
    "the parameters are not finite",
    "the update is out of proportion",
)


class Attempt(NamedTuple):
    """One step, done and judged on the device."""

    step: Step
    copies: DeviceSnapshot | None = None  # the tensors before it
    verdict: Tensor | None = None  # a flag for each of REASONS; None if there is nothing to judge
    undone: bool = False  # whether tensors were put right on the device, where the verdict says so


class Raw(NamedTuple):
    """What the last batch did, as the device has it: computing with it is free, reading it waits, and the next batch
    overwrites it.
    """

    steps: Sequence[Step]  # none before the first batch
    event: str | None  # what the watch did
    undone: Tensor  # steps undone so far, (); on the host where nothing was judged yet
    verdict: Tensor | None  # of the last step, a flag for each of REASONS; None if there was nothing to judge


class Guard:
    """Runs the steps of one adapter. Its memory is one mark of the state, and a few numbers."""

    asynchronous = ("cuda",)  # devices on which the host does not wait for a verdict

    def __init__(self, mode: str) -> None:
        if mode not in MODES:
            raise InputError(f"guard: expected one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode
        # mean length of healthy updates, their number, leaps in a row, steps undone: in one place, on one device
        self._usual = torch.zeros(4, dtype=torch.float64)
        self._copies: DeviceSnapshot | None = None
        self._pending: tuple[State, HostSnapshot, Attempt] | None = (
            None  # a verdict that the host must read before it goes on
        )
        self._verdict: Tensor | None = None  # of the last step
        self._warned = False  # that a step has raised

    def step(self, method: Method[Any], state: State, x: Tensor, run: Callable[[Work, Tensor], Any]) -> Step:
        """Do one step of the method, or none: a harmful one leaves no trace but its report.

        `run` does the work on the device, or repeats it from a captured graph.
        """
        self.begin()
        host = HostSnapshot(state)
        try:
            try:
                attempt: Attempt = run(lambda x: self._attempt(method, state, x), x)
            except Exception as error:
                if self.mode in ("raise", "off") or must_propagate(error):
                    raise
                self._revert(state, host)
                return self._answer(method, state, x, error)
        except BaseException:
            self._revert(state, host)
            raise
        step, self._verdict = attempt.step, attempt.verdict
        if attempt.verdict is None:
            return step
        if not (attempt.undone and host.empty):
            self._pending = state, host, attempt
        if attempt.undone and self.mode != "raise":
            return step
        reason = self.reason
        if reason is None:
            return step
        if self.mode == "raise":
            raise GuardError(f"step undone: {reason}. The model is as before; guard='skip' goes on by itself.")
        return step._replace(moved=False, used=0, note=reason)

    def begin(self) -> None:
        """End the last step, and know nothing of this batch's: there may be none."""
        self.settle()
        self._verdict = self._copies = None

    def _revert(self, state: State, host: HostSnapshot) -> None:
        """Undo a step that raised."""
        if self.mode == "off":
            state.model.forget_gradients()
            return
        if self._copies is not None:
            self._copies.revert()
        host.revert(state)

    def _answer(self, method: Method[Any], state: State, x: Tensor, error: Exception) -> Step:
        """Answer a batch whose step raised, by the model as it was; what raises here too is no matter of the step."""
        step = Step(method.predict(state, x), used=0, moved=False, note=f"the step raised {error!r}")
        self._usual[3] += 1
        self._warn_once(step.note)
        return step

    def _warn_once(self, why: str | None) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"step undone, and its batch answered without adapting: {why}. adapter.last.skipped tells of later "
                "ones; guard='raise' lets such errors through",
                SteepWarning,
                stacklevel=3,
            )

    def _attempt(self, method: Method[Any], state: State, x: Tensor) -> Attempt:
        """Everything that happens on the device."""
        if self.mode == "off":
            return Attempt(_detach_logits(method.step(state, x)))
        self._copies = copies = DeviceSnapshot(state)
        step = _detach_logits(method.step(state, x))
        if not step.moved:
            return Attempt(step)
        verdict = self._judge(step, state, copies)
        self._usual[3] += verdict.any()
        undone = verdict.device.type in self.asynchronous and copies.revert_where(verdict.any(), state)
        return Attempt(step, copies, verdict, undone)

    def settle(self) -> None:
        """Read the verdict of the last step, and finish undoing it."""
        if self._pending is None:
            return
        (state, host, attempt), self._pending = self._pending, None
        if attempt.verdict is not None and attempt.verdict.any():
            if attempt.copies is not None and not attempt.undone:
                attempt.copies.revert()
            host.revert(state)
            self._named(attempt.verdict)

    @property
    def undone(self) -> int:
        """How many steps were undone since the start or the last reset."""
        return int(self._usual[3])

    def raw(self, steps: Sequence[Step], event: str | None) -> Raw:
        """Put what the guard knows beside what the adapter knows, without waiting for the device."""
        return Raw(steps, event, self._usual[3], self._verdict)

    @property
    def reason(self) -> str | None:
        """Why the last step was undone, if it was."""
        self.settle()
        return None if self._verdict is None else self._named(self._verdict)

    def _named(self, verdict: Tensor) -> str | None:
        """Put a verdict into words, which waits for the device. What is not finite may well be so at every batch."""
        reason = ", ".join(reason for fault, reason in zip(verdict.tolist(), REASONS, strict=True) if fault) or None
        if reason and "finite" in reason and self.mode != "raise":
            self._warn_once(reason)
        return reason

    @torch.no_grad()
    def _judge(self, step: Step, state: State, copies: DeviceSnapshot) -> Tensor:
        """Weigh a step on the device: a flag for each of REASONS."""
        length, whole = copies.moved(state)
        self._usual = self._usual.to(length.device)
        mean, count, row, undone = self._usual.clone()
        loss = length.new_zeros(()) if step.loss is None else step.loss.double()
        # a sum is finite only if all its terms are; in double precision it cannot overflow by itself. The largest logit
        # of an image shows NaN and +inf; −inf among the others rules a class out
        answer = total(step.logits.amax(dim=1).sum(dtype=torch.float64))
        finite = torch.stack([loss, answer, length]).isfinite()
        leap = step.leap  # a number from the host would make it wait
        meant = leap if isinstance(leap, Tensor) else torch.full((), leap, device=length.device)
        far = (count >= WARMUP) & (length > PROPORTION * torch.maximum(mean, LEAST * whole)) & ~meant
        settled = far & (row >= PATIENCE)  # not a leap any more
        faults = torch.cat([~finite, (far & ~settled)[None]])
        pace = (1 / (count + 1)).clamp_min(0.1)
        zero = torch.zeros_like(row)
        healthy = torch.stack([mean + pace * (length - mean), count + 1, zero, undone])
        anew = torch.stack([length, torch.full_like(count, WARMUP), zero, undone])
        refused = torch.stack([mean, count, row + far, undone])
        usual = torch.where(meant | (length == 0), self._usual, torch.where(settled, anew, healthy))
        self._usual.copy_(torch.where(faults.any(), refused, usual))
        return faults

    def snapshot(self) -> dict[str, Any]:
        """Copy what the guard knows."""
        self.settle()
        return {"usual": self._usual.to("cpu", copy=True)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back what the guard knew."""
        self._usual.copy_(saved["usual"])  # in its place: a recorded graph writes there
        self._pending = self._verdict = None

    def forget(self) -> None:
        """Know nothing yet."""
        self.restore({"usual": torch.zeros(4)})
        self._warned = False


def _detach_logits(step: Step) -> Step:
    """Free what led to the logits: a recording would keep it, and with it nodes that belong to its own stream."""
    return step._replace(logits=step.logits.detach())


def must_propagate(error: Exception) -> bool:
    """Whether an error is not to be survived by answering without a step.

    Steep's own name something to mend, as does an operation that deterministic=True rules out; a full GPU is answered
    in pieces; after an error of the device nothing works any more; other ranks cannot know that this one raised.
    """
    device = getattr(torch, "AcceleratorError", ())  # since torch 2.8
    if isinstance(error, (SteepError, torch.cuda.OutOfMemoryError, device)) or SCOPE.get() is not None:
        return True
    unrepeatable = torch.are_deterministic_algorithms_enabled() and "deterministic" in str(error)
    return unrepeatable or "CUDA error" in str(error)
