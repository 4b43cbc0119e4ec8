"""Slow collapse: every step is healthy, and yet the model forgets all classes but a few.

`guard="recover"` watches the answers: how many classes they still use, how sure they are, and how far the energy of the
model's samples runs away from that of the test images, each against what is usual on this stream. What is usual is the
source model's to say, which answers the first batches too: a model that has collapsed by then would say that it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from steep.core.batch import mean
from steep.core.classifier import copied
from steep.core.dist.group import SCOPE
from steep.core.losses import entropy
from steep.core.method import Method, State
from steep.core.run.guard import must_propagate
from steep.core.run.snapshot import DeviceSnapshot
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
    """Looks at the answers of one adapter and brings the model back: to its last healthy state, or to the source."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing yet."""
        self.batches = 0
        self.mean: Tensor | None = None  # (K + 2,): mean prediction, entropy, energy gap, as running averages
        self.source: Tensor | None = None  # the same of the source model's answers to the first batches
        self.usual: list[float] | None = None  # effective classes, entropy, gap of a healthy model
        self.healthy: dict[str, Any] | None = None  # the one snapshot
        self.looked = 0  # times, in all
        self.looks = 0  # since the last recovery
        self.recoveries = 0
        self.rests = 0  # in a row
        self.asking = True  # the source model, too; until it fails
        self.rest = 0  # batches still to be answered without adapting

    def consume_rest_batch(self) -> bool:
        """Count one batch: whether it is to be answered without adapting."""
        if not self.rest:
            return False
        self.rest -= 1
        return True

    @torch.no_grad()
    def ask(self, method: Method[Any], state: State, initial: Mapping[str, Any], x: Tensor) -> None:
        """Let the source model answer one of the first batches too, and leave the adapted one as it is."""
        if not self.asking or self.batches >= FIRST * PERIOD:
            return
        try:
            adapted = DeviceSnapshot(state)
            try:
                state.model.restore(initial["model"])
                with state.model.uncompiled():
                    self.source = _followed(self.source, method.predict(state, x), None)
            finally:
                adapted.revert()
        except Exception as error:  # the batch has its answer already: it goes without a second opinion
            full = isinstance(error, torch.cuda.OutOfMemoryError) and SCOPE.get() is None  # ranks must stay in step
            if must_propagate(error) and not full:
                raise
            self.asking = False
            warnings.warn(
                f"guard='recover': the source model could not answer beside the adapted one ({error!r}), so a collapse "
                "within the first batches may go unnoticed",
                SteepWarning,
                stacklevel=2,
            )

    @torch.no_grad()
    def look(
        self, state: State, initial: Mapping[str, Any], logits: Tensor, gap: Tensor | None, settle: Callable[[], None]
    ) -> str | None:
        """Take in one answer; every PERIOD batches judge, and recover if need be. Says what it did.

        `settle` ends the last step, which must be over before the state is copied or replaced.
        """
        self.mean = _followed(self.mean, logits, gap)
        self.batches += 1
        if self.batches % PERIOD:
            return None
        settle()
        self.looks += 1
        if not bool(self.mean.isfinite().all()):
            self.mean = None
            return None
        seen = _read(self.mean)
        self.looked += 1
        usual = self._usual_now(seen)
        reason = _collapsed(seen, usual, len(self.mean) - 2)
        if reason is None:
            if self.looked > FIRST:
                self.usual = _towards(usual, seen, PACE)
            if seen[0] >= WELL * usual[0] and seen[1] <= CALM * usual[1] + 0.05:
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

    def _usual_now(self, seen: list[float]) -> list[float]:
        """What to compare with: at first the source model's answers to the same images, later their mean."""
        if self.looked > FIRST and self.usual is not None:
            return self.usual
        known = seen if self.source is None or not bool(self.source.isfinite().all()) else _read(self.source)
        now = [*known[:2], min(seen[2], LEAST_GAP)]  # the source model draws no samples
        self.usual = _towards(self.usual or now, now, 1 / self.looked)
        return now

    def snapshot(self) -> dict[str, Any]:
        """Copy everything known."""
        return dict(vars(self))

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back what was known."""
        if set(saved) != set(vars(self)):
            raise CheckpointError(f"watch: expected {sorted(vars(self))}, got {sorted(saved)}")
        vars(self).update(copied(dict(saved)))


def _followed(mean_so_far: Tensor | None, logits: Tensor, gap: Tensor | None) -> Tensor:
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


def _collapsed(seen: list[float], usual: list[float], k: int) -> str | None:
    classes, sure, apart = seen
    if classes < FEWER_CLASSES * usual[0]:
        return f"the answers use {classes:.1f} classes, usually {usual[0]:.1f}"
    if classes < NARROWER * usual[0] and sure < SURER * usual[1]:
        return f"the answers use {classes:.1f} classes (usually {usual[0]:.1f}) at entropy {sure:.3f} ({usual[1]:.3f})"
    if sure > max(UNSURE * usual[1], RELIABLE * math.log(k)):
        return f"the answers have an entropy of {sure:.2f}, usually {usual[1]:.2f}"
    if apart > LEAST_GAP and apart > WIDER_GAP * usual[2]:
        return f"the energy gap to the samples is {apart:.1f}, usually {usual[2]:.1f}"
    return None
