"""The way of a batch: take a snapshot, do the steps, judge them, keep or undo them, answer.

A batch is one transaction. Either it is adapted on and answered and `outcome` tells of it, or model, optimiser,
generators, memories and guard are as before it and `outcome` is that of the batch before: whatever
raises, where it raises, Ctrl-C included. Only `guard="off"` takes no snapshot: a step that raises leaves behind what it
has changed so far, but `outcome` is never of half a batch.

The guard undoes a single step that would harm the model: its loss, its logits or the parameters it leads to are not
finite, its update is out of proportion to the recent ones, or it raises. The batch is then answered by the model as it
was. On a GPU tensors are put right on the device and the host does not wait for the verdict: it reads it when somebody
looks or, where something lives on the host (a generator, say), before the next batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from steep.core.batch import total
from steep.core.classifier import copy_tensors
from steep.core.method import Method, State, Step
from steep.core.report import Outcome, totals
from steep.core.run.attempt import NOT_FINITE, REASONS, Attempt, Before, Replay
from steep.core.run.failures import must_propagate
from steep.core.run.graph import Graphs, Recording, Work
from steep.core.run.snapshot import DeviceSnapshot, HostSnapshot, without_a_trace
from steep.core.run.watched import Watched, watch
from steep.core.settings import Behaviour
from steep.core.statistics import MixingState
from steep.core.views import VIEWS, mean_answer
from steep.errors import CheckpointError, GuardError, SteepWarning

PROPORTION = 10.0  # times the usual length of an update ...
LEAST = 1e-3  # ... and that at least this share of the length of the parameters: quiet data must not freeze the model
PATIENCE = 5  # updates in a row that are out of proportion to the old ones: then they are the new usual
WARMUP = 10  # healthy updates before "usual" means anything: an optimiser's first ones are unlike the later


class Runner:
    """Runs the batches of one adapter."""

    asynchronous = ("cuda",)  # devices on which the host does not wait for a verdict

    def __init__(
        self, method: Method[Any], state: State, behaviour: Behaviour, *, graph: bool = False, alone: bool = True
    ) -> None:
        self.method: Method[Any] | Watched = method
        if behaviour.guard == "recover" and not method.baseline:
            self.method, state = Watched(method, episodic=behaviour.episodic), watch(state)
        self.state, self.behaviour, self.alone = state, behaviour, alone
        self._begin_with(state.snapshot())
        self.graphs = Graphs(graph)
        self.outcome: Outcome | None = None  # of the last batch
        # mean length of healthy updates, their number, leaps in a row, steps undone: in one place, on one device
        self._numbers = torch.zeros(4, dtype=torch.float64)
        self._host: HostSnapshot | None = None  # before the batch
        self._undo: list[Before | Replay] = []  # what brings the device back to before the batch, last step last
        self._pending: tuple[HostSnapshot, Attempt] | None = None  # a step whose verdict the host has yet to read
        self._warned = False  # that a step was undone

    @property
    def compares_with_source(self) -> bool:
        """Whether the guard asks the source model if adapting helps."""
        return self.behaviour.guard == "recover"

    def run(self, x: Tensor) -> Outcome:
        """Adapt on the images and answer them."""
        behaviour, views = self.behaviour, []
        self._meet(x)
        with self._transaction(x):
            if behaviour.episodic:
                self._take_snapshot()
                self.state.restore(self.initial)
                self.state.model.since_reset = 0
                self._host = None  # that was of another state
            attempts = [self._step(x) for _ in range(behaviour.steps - 1)]
            views = self._predict_views(x) if behaviour.predict == "before" else []
            attempts.append(self._step(x))
            steps = [attempt.step for attempt in attempts]
            logits = steps[-1].logits
            if behaviour.predict == "after" and steps[-1].moved:
                logits = self._predict(x)
            if behaviour.views:
                logits = mean_answer([logits, *(views or self._predict_views(x))])
            shared = None if self.alone else totals(steps[0].logits, logits)
            self.outcome = Outcome(steps, logits, self._numbers[3], attempts[-1].verdict, shared)
            self.state.model.batches += 1
            self.state.model.since_reset += 1
            return self.outcome

    @torch.no_grad()
    def answer(self, x: Tensor, note: str, pieces: int = 1) -> Outcome:
        """Answer the images without adapting, in ever smaller pieces until one fits into memory."""
        self._meet(x)
        with self._transaction(x):
            self._take_snapshot()
            while True:
                try:
                    logits = torch.cat([self._answer_piece(piece) for piece in x.chunk(pieces)])
                    break
                except torch.cuda.OutOfMemoryError:
                    if pieces >= len(x):
                        raise  # not even one image fits
                    pieces *= 2
                    torch.cuda.empty_cache()
            self.outcome = Outcome([Step(logits, used=0, moved=False, note=note)], logits, self._numbers[3])
            return self.outcome

    @torch.no_grad()
    def peek(self, x: Tensor, *, plain: bool = False) -> Tensor:
        """Answer the images without adapting, and leave everything as it is, `outcome` too."""
        self.settle()
        self._meet(x)
        with without_a_trace(self.state):
            if self.behaviour.episodic:
                self.state.restore(self.initial)
            logits: Tensor = self.state.model(x) if plain else self.method.predict(self.state, x)
            return logits

    def _meet(self, x: Tensor) -> None:
        if isinstance(self.state, MixingState):
            self.state.meet(x)

    def _answer_piece(self, x: Tensor) -> Tensor:
        logits = self.method.predict(self.state, x)
        return mean_answer([logits, *self._predict_views(x)]) if self.behaviour.views else logits

    @contextmanager
    def _transaction(self, x: Tensor) -> Iterator[None]:
        """Bring everything back if the batch does not end well."""
        self.settle()
        if x.device.type != "mps":  # which has no float64
            self._numbers = self._numbers.to(x.device)
        self._undo, self._host = [], None if self.behaviour.guard == "off" else HostSnapshot(self.state)
        host, outcome = self._host, self.outcome
        answered = self.state.model.since_reset
        try:
            yield
        except BaseException as error:
            numbers = self._numbers.clone()
            for before in reversed(self._undo):
                before.revert()
            if host is not None:
                host.revert(self.state)
            self.state.model.forget_gradients()  # the next step would add to them
            self.state.model.since_reset = answered
            self.outcome, self._pending = outcome, None
            if isinstance(error, GuardError):  # a verdict and no accident: it counts
                self._numbers.copy_(numbers)
            raise

    def _take_snapshot(self) -> Before | None:
        """Note what the device has, to be brought back if the batch does not end well."""
        if self.behaviour.guard == "off":
            return None
        before = self._before()
        self._undo.append(before)
        return before

    def _before(self) -> Before:
        return Before(DeviceSnapshot(self.state), self._numbers, self._numbers.clone())

    def _step(self, x: Tensor) -> Attempt:
        """Do one step of the method, or none: a harmful one leaves no trace but its report."""
        guard = self.behaviour.guard
        if guard == "off":
            return self._do_or_replay(x)
        host, self._host = self._host or HostSnapshot(self.state), None  # the batch's serves its first step
        begin = len(self._undo)
        try:
            attempt = self._do_or_replay(x)
        except Exception as error:
            if guard == "raise" or must_propagate(error, alone=self.alone):
                raise
            for before in reversed(self._undo[begin:]):
                before.revert()
            host.revert(self.state)
            return Attempt(self._answer_failed_step(x, error))
        if attempt.verdict is None:
            return attempt
        if attempt.undone and guard != "raise":  # the host need not know yet
            self._pending = None if host.still_holds(self.state) else (host, attempt)
            return attempt
        if not attempt.verdict.any():
            return attempt
        attempt.finish_undoing(host, self.state)
        reason = self._explain(attempt.verdict)
        if guard == "raise":
            raise GuardError(f"step undone: {reason}. The model is as before; guard='skip' goes on by itself.")
        return attempt._replace(step=attempt.step._replace(moved=False, used=0, note=reason))

    def _do_or_replay(self, x: Tensor) -> Attempt:
        """Do a step by hand, or from its recording."""
        recording = self._recording("step", self._record_step, x)
        if recording is None:
            return self._attempt(x, self._take_snapshot())
        if self.behaviour.guard != "off":
            self._undo.append(Replay(recording, recording.launched))
        attempt: Attempt = recording.replay(x).clone()
        if self.behaviour.steps > 1 and attempt.before is not None:  # the next step overwrites this snapshot
            self._undo[-1] = attempt.before.clone()
        return attempt

    def _record_step(self, x: Tensor) -> Attempt:
        return self._attempt(x, None if self.behaviour.guard == "off" else self._before())

    def _attempt(self, x: Tensor, before: Before | None) -> Attempt:
        """Do everything of a step that happens on the device: this is what a graph records."""
        step = self.method.step(self.state, x)
        step = step._replace(logits=step.logits.detach())  # frees what led to them: a recording would keep it
        if before is None or not step.moved:
            return Attempt(step, before)
        verdict = self._judge(step, before)
        self._numbers[3] += verdict.any()
        undone = verdict.device.type in self.asynchronous and before.tensors.revert_where(verdict.any(), self.state)
        return Attempt(step, before, verdict, undone)

    def _predict(self, x: Tensor) -> Tensor:
        recording = self._recording("predict", lambda x: self.method.predict(self.state, x), x)
        logits: Tensor = self.method.predict(self.state, x) if recording is None else recording.replay(x).clone()
        return logits

    def _predict_views(self, x: Tensor) -> list[Tensor]:
        """Answer the views of the images that the caller asks for besides the images themselves."""
        if self.behaviour.views is None:
            return []
        self._take_snapshot()  # a forward may write to buffers
        return [self._predict(view) for view in VIEWS[self.behaviour.views](x)]

    def _recording(self, name: str, work: Work, x: Tensor) -> Recording | None:
        if not self.graphs.enabled or not self.method.repeats(self.state, x):
            return None
        # a plain prediction reads the model alone: what else a step has put aside for it may be somewhere else now
        plain = name == "predict" and type(self.method).predict is Method.predict
        after = "step" if name == "predict" else None  # else answering would overwrite the step's snapshot
        return self.graphs.recording(name, work, x, self.state, after=after, reads_model_only=plain)

    @torch.no_grad()
    def _judge(self, step: Step, before: Before) -> Tensor:
        """Weigh a step on the device: a flag for each of REASONS."""
        length, whole = before.tensors.distance(self.state)
        mean, count, row, undone = before.numbers
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
        usual = torch.where(meant | (length == 0), before.numbers, torch.where(settled, anew, healthy))
        self._numbers.copy_(torch.where(faults.any(), refused, usual))
        return faults

    def _answer_failed_step(self, x: Tensor, error: Exception) -> Step:
        """Answer a batch whose step raised, by the model as it was. If this raises too, the step was not the cause."""
        step = Step(self.method.predict(self.state, x), used=0, moved=False, note=f"the step raised {error!r}")
        self._numbers[3] += 1
        self._warn_once(step.note)
        return step

    def settle(self) -> None:
        """Read the verdict of the last step, if the host must know it, and finish undoing the step."""
        if self._pending is None:
            return
        host, attempt = self._pending
        harmful = attempt.verdict is not None and bool(attempt.verdict.any())
        if harmful:
            attempt.finish_undoing(host, self.state)
        self._pending = None
        if harmful:
            self._explain(attempt.verdict)

    def _explain(self, verdict: Tensor | None) -> str | None:
        """Put a verdict into words, which waits for the device. What is not finite may well be so at every batch."""
        faults = [] if verdict is None else verdict.tolist()
        reason = ", ".join(reason for fault, reason in zip(faults, REASONS, strict=False) if fault) or None
        if any(faults[NOT_FINITE]) and self.behaviour.guard != "raise":
            self._warn_once(reason)
        return reason

    def _warn_once(self, why: str | None) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"step undone, and its batch answered without adapting: {why}. adapter.last.skipped tells of later "
                "ones; guard='raise' lets such errors through",
                SteepWarning,
                stacklevel=3,
            )

    def why_undone(self) -> str | None:
        """Say why the last step was undone, if it was. This waits for the device."""
        self.settle()
        return None if self.outcome is None else self._explain(self.outcome.verdict)

    def reset(self) -> None:
        """Go back to the state that this runner began with."""
        self.state.restore(self.initial)
        self.state.model.since_reset = 0
        self._numbers.zero_()  # in its place: a recorded graph writes there
        self.outcome = self._pending = None
        self._warned = False

    def state_dict(self) -> dict[str, Any]:
        """Copy everything that moves."""
        self.settle()
        return {
            "guard": {"usual": self._numbers.to("cpu", copy=True)},
            "initial": copy_tensors(self.initial),
            "state": self.state.snapshot(),
            "since_reset": self.state.model.since_reset,
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Bring back what `state_dict()` gave, or raise with nothing changed."""
        before = self.state_dict()
        try:
            self._load(saved)
        except BaseException:
            self._load(before)
            raise
        self._begin_with(copy_tensors(dict(saved["initial"])))
        self.outcome = None

    def _begin_with(self, initial: dict[str, Any]) -> None:
        self.initial = initial
        if isinstance(self.method, Watched):
            self.method.initial = initial

    def _load(self, saved: Mapping[str, Any]) -> None:
        for name in ("initial", "state"):
            self.state.check(saved[name], self.initial)
        later = [each.name for each in fields(self.state) if "shape" in each.metadata]
        if early := [name for name in later if saved["initial"][name] is not None]:
            raise CheckpointError(f"state: initial: expected {early} to be made by the first batch, got them before it")
        numbers = saved["guard"]["usual"]
        if not isinstance(numbers, Tensor) or numbers.shape != self._numbers.shape or not bool((numbers >= 0).all()):
            raise CheckpointError("state: guard: expected four numbers of at least 0, got something else")
        answered = saved.get("since_reset", 0)  # older states have none
        if type(answered) is not int or answered < 0:
            raise CheckpointError(f"state: since_reset: expected a whole number of at least 0, got {answered!r}")
        self.state.restore(saved["initial"])  # shows that a later reset() will find what it needs
        self.state.restore(saved["state"])
        self._numbers.copy_(numbers)
        self.state.model.since_reset = answered
        self._pending = None
