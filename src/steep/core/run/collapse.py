"""Slow collapse: every step is healthy, and yet the model forgets all classes but a few.

`guard="recover"` watches the answers: how many classes they use, how sure they are, and how far the energy of the
model's samples is from that of the test images. The baseline is the source model's answers to the first 50 batches; a
model that has collapsed by then would be a bad one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from steep.core.batch import mean
from steep.core.losses import entropy
from steep.core.method import Method, State
from steep.core.run.failures import must_propagate
from steep.core.run.snapshot import DeviceSnapshot, HostSnapshot
from steep.errors import CheckpointError, SteepWarning

PERIOD = 10  # batches between two looks; only a look makes the host wait
FADE = 0.9  # of the running averages
FIRST = 5  # looks for which the source model answers too
PACE = 0.005  # how far "usual" follows each later look: a slow collapse must not drag it along

FEWER_CLASSES = 0.75  # share of the usual effective number of classes under which the model has collapsed
NARROWER, SURER = 0.9, 0.1  # ... or this share of the classes at this share of the usual entropy
UNSURE, RELIABLE = 2.0, 0.4  # ... or this many times the usual entropy, if that is over RELIABLE · ln K as well
WIDER_GAP, LEAST_GAP = 20.0, 10.0  # ... or so many times the usual energy gap, and at least so many nats
WELL, CALM = 0.9, 1.5  # share of the classes, times the entropy, up to which a state is worth coming back to

SOON = 3  # looks: a model that collapses within so many will do so again, so its recovery is followed by a rest ...
MOST_RESTS = 7  # ... of 10 batches, then 20, 40, up to 640
RESTING = "resting: the model had collapsed soon after it began to adapt"


class CollapseMonitor:
    """Watches the answers of one adapter and brings the model back: to its last healthy state, or to the source.

    Its attributes are what is saved. They are replaced and never written to, so a shallow copy of them is a snapshot.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again with nothing known."""
        self.batches = 0
        self.mean: Tensor | None = None  # (K + 2,): mean prediction, entropy, energy gap, as running averages
        self.source: Tensor | None = None  # the same of the source model's answers to the first batches
        self.usual: list[float] | None = None  # effective classes, entropy, gap of a healthy model
        self.healthy: dict[str, Any] | None = None  # the one snapshot of the state
        self.looked = 0  # times, in all
        self.looks = 0  # since the last recovery
        self.recoveries = 0
        self.rests = 0  # in a row
        self.asking = True  # the source model, too; until it fails
        self.rest = 0  # batches still to be answered without adapting

    def consume_rest_batch(self) -> bool:
        """Take one off the batches to be answered without adapting; False if there are none."""
        self.rest, resting = max(0, self.rest - 1), self.rest > 0
        return resting

    @property
    def wants_source_answer(self) -> bool:
        """Whether the source model is to answer this batch too."""
        return self.asking and self.batches < FIRST * PERIOD

    @torch.no_grad()
    def ask_source_model(
        self, method: Method[Any], state: State, initial: Mapping[str, Any], x: Tensor, *, alone: bool
    ) -> None:
        """Let the source model answer these images too, and leave the adapted one as it is."""
        try:
            adapted, host = DeviceSnapshot(state), HostSnapshot(state)
            try:
                if type(method).predict is Method.predict:
                    state.model.restore(initial["model"])
                else:  # it answers by more than its model
                    state.restore(initial)
                with state.model.uncompiled():
                    logits = method.predict(state, x)
            finally:
                adapted.revert()
                host.revert(state)
            self.source = _update_average(self.source, logits, None)
        except Exception as error:  # the batch has its answer already: it goes without a second opinion
            no_room = isinstance(error, torch.cuda.OutOfMemoryError) and alone  # ranks must stay in step
            if must_propagate(error, alone=alone) and not no_room:
                raise
            self.asking = False
            warnings.warn(
                f"guard='recover': the source model could not answer beside the adapted one ({error!r}), so a collapse "
                "within the first batches may go unnoticed",
                SteepWarning,
                stacklevel=2,
            )

    def add_answer(self, logits: Tensor, gap: Tensor | None) -> bool:
        """Take in the adapted model's answer to a batch; True if it is time for `look`."""
        self.mean = _update_average(self.mean, logits, gap)
        self.batches += 1
        return self.batches % PERIOD == 0

    @torch.no_grad()
    def look(self, state: State, initial: Mapping[str, Any]) -> str | None:
        """Judge the answers so far, and recover if need be. Returns what was done. This waits for the device."""
        self.looks += 1
        if self.mean is None or not bool(self.mean.isfinite().all()):
            self.mean = None
            return None
        now = _read(self.mean)
        self.looked += 1
        usual = self._usual_now(now)
        reason = _collapsed(now, usual, len(self.mean) - 2)
        if reason is None:
            if self.looked > FIRST:
                self.usual = _towards(usual, now, PACE)
            if now[0] >= WELL * usual[0] and now[1] <= CALM * usual[1] + 0.05:
                self.healthy = state.snapshot()
            return None
        soon = self.looks <= SOON
        # a state that collapses again at once was not healthy: then the source it is
        again = self.healthy is None or (self.recoveries > 0 and soon)
        state.restore(initial if again else self.healthy or initial)
        self.healthy = None if again else self.healthy
        self.rests = min(self.rests + 1, MOST_RESTS) if soon else 0
        self.rest = PERIOD * 2 ** (self.rests - 1) if soon else 0
        self.mean, self.source, self.looks, self.recoveries = None, None, 0, self.recoveries + 1
        return f"recovered {'the source model' if again else 'the last healthy state'}: {reason}"

    def _usual_now(self, now: list[float]) -> list[float]:
        """Say what to compare with: at first the source model's answers to the same images, later their mean."""
        if self.looked > FIRST and self.usual is not None:
            return self.usual
        known = now if self.source is None or not bool(self.source.isfinite().all()) else _read(self.source)
        usual = [*known[:2], min(now[2], LEAST_GAP)]  # the source model draws no samples
        self.usual = _towards(self.usual or usual, usual, 1 / self.looked)
        return usual

    def snapshot(self) -> dict[str, Any]:
        """Everything known, by reference."""
        return dict(vars(self))

    def check_saved(self, saved: Any, state: State, initial: Mapping[str, Any]) -> None:
        """Refuse a snapshot from a file that is not one of a monitor of this state."""
        if not isinstance(saved, Mapping) or set(saved) != set(vars(self)):
            raise CheckpointError(f"state: watch: expected the keys {sorted(vars(self))}, got something else")
        for name, value in vars(self).items():
            if isinstance(value, int) and (type(saved[name]) is not type(value) or saved[name] < 0):
                raise CheckpointError(f"state: watch.{name}: expected a whole number from 0 on, got {saved[name]!r}")
        for name in ("mean", "source"):
            average = saved[name]
            if average is not None and not (isinstance(average, Tensor) and average.ndim == 1 and len(average) >= 4):
                raise CheckpointError(f"state: watch.{name}: expected the average of some answers, got something else")
        usual = saved["usual"]
        if usual is not None and not (isinstance(usual, list) and len(usual) == 3 and all(map(_is_finite, usual))):
            raise CheckpointError(f"state: watch.usual: expected three numbers, got {usual!r:.60}")
        if saved["healthy"] is not None:
            state.check(saved["healthy"], initial)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back a snapshot."""
        vars(self).update(saved)


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


@torch.no_grad()
def _update_average(mean_so_far: Tensor | None, logits: Tensor, gap: Tensor | None) -> Tensor:
    """Let a running average (K + 2,) take in one answer, on the device."""
    now = torch.cat(
        [
            mean(logits.softmax(dim=1)),
            mean(entropy(logits))[None],
            (logits.new_zeros(()) if gap is None else gap.abs().to(logits.dtype))[None],
        ]
    )
    if mean_so_far is None:
        return now
    before = mean_so_far.to(now.device)  # it may have come from a file
    both = torch.where(before.isfinite().all(), FADE * before + (1 - FADE) * now, now)
    return torch.where(now.isfinite().all(), both, before)  # one that is not finite is of a step that is being undone


def _read(average: Tensor) -> list[float]:
    """Effective number of classes, entropy, gap."""
    p = average[:-2].double().cpu()
    return [float(torch.special.entr(p / p.sum()).sum().exp()), *average[-2:].tolist()]


def _towards(usual: list[float], new: list[float], pace: float) -> list[float]:
    return [u + pace * (n - u) for u, n in zip(usual, new, strict=True)]


def _collapsed(now: list[float], usual: list[float], k: int) -> str | None:
    classes, sure, apart = now
    if classes < FEWER_CLASSES * usual[0]:
        return f"the answers use {classes:.1f} classes, usually {usual[0]:.1f}"
    if classes < NARROWER * usual[0] and sure < SURER * usual[1]:
        return f"the answers use {classes:.1f} classes (usually {usual[0]:.1f}) at entropy {sure:.3f} ({usual[1]:.3f})"
    if sure > max(UNSURE * usual[1], RELIABLE * math.log(k)):
        return f"the answers have an entropy of {sure:.2f}, usually {usual[1]:.2f}"
    if apart > LEAST_GAP and apart > WIDER_GAP * usual[2]:
        return f"the energy gap to the samples is {apart:.1f}, usually {usual[2]:.1f}"
    return None
