"""Slow collapse: every step is healthy, and yet the model forgets all classes but a few.

`guard="recover"` watches the answers: how many classes they still use, how sure they are, and how far the energy of the
model's samples runs away from that of the test images, each against what was usual on this stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from steep.core.batch import mean
from steep.core.losses import entropy
from steep.core.method import State
from steep.core.source import copied
from steep.errors import CheckpointError

PERIOD = 10  # batches between two looks; only a look makes the host wait
FADE = 0.9  # of the running averages
FIRST = 5  # looks that say what is usual; none of them is judged
PACE = 0.005  # how far "usual" follows each later look: a slow collapse must not drag it along

FEWER_CLASSES = 0.75  # share of the usual effective number of classes under which the model has collapsed
NARROWER, SURER = 0.9, 0.1  # ... or this share of the classes at this share of the usual entropy
UNSURE, RELIABLE = 2.0, 0.4  # ... or this many times the usual entropy, if that is over RELIABLE · ln K as well
WIDER_GAP, LEAST_GAP = 20.0, 10.0  # ... or so many times the usual energy gap, and at least so many nats
WELL, CALM = 0.9, 1.5  # share of the classes, times the entropy, up to which a state is worth coming back to


class Watch:
    """Looks at the answers of one adapter and brings the model back: to its last healthy state, or to the source."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing yet."""
        self.batches = 0
        self.mean: Tensor | None = None  # (K + 2,): mean prediction, entropy, energy gap, as running averages
        self.usual: list[float] | None = None  # effective classes, entropy, gap, while the model was healthy
        self.healthy: dict[str, Any] | None = None  # the one snapshot
        self.looked = 0  # times, in all
        self.looks = 0  # since the last recovery
        self.recoveries = 0

    @torch.no_grad()
    def look(
        self, state: State, initial: Mapping[str, Any], logits: Tensor, gap: Tensor | None, settle: Callable[[], None]
    ) -> str | None:
        """Take in one answer; every PERIOD batches judge, and recover if need be. Says what it did."""
        now = torch.cat(
            [
                mean(logits.softmax(dim=1)),
                mean(entropy(logits))[None],
                (logits.new_zeros(()) if gap is None else gap.abs().to(logits.dtype))[None],
            ]
        )
        if self.mean is not None:  # an answer that is not finite belongs to a step that is being undone
            mean_so_far = self.mean.to(now.device)  # it may have come from a file
            now = torch.where(now.isfinite().all(), FADE * mean_so_far + (1 - FADE) * now, mean_so_far)
        self.mean = now
        self.batches += 1
        if self.batches % PERIOD:
            return None
        settle()  # before the state is copied or replaced, the last step must be over
        self.looks += 1
        if not bool(self.mean.isfinite().all()):
            self.mean = None
            return None
        p = self.mean[:-2].double().cpu()
        classes = float(torch.special.entr(p / p.sum()).sum().exp())
        sure, apart = (float(v) for v in self.mean[-2:])
        seen = [classes, sure, apart]
        self.looked += 1
        usual = seen if self.usual is None else self.usual
        reason = None if self.looked <= FIRST else _collapsed(classes, sure, apart, usual, len(p))
        if reason is None:
            pace = 1 / self.looked if self.looked <= FIRST else PACE
            self.usual = [u + pace * (s - u) for u, s in zip(usual, seen, strict=True)]
            if classes >= WELL * usual[0] and sure <= CALM * usual[1] + 0.05:
                self.healthy = state.snapshot()
            return None
        # a state that collapses again at once was not healthy: then the source it is
        again = self.healthy is None or (self.recoveries > 0 and self.looks <= 3)
        state.restore(initial if again else self.healthy or initial)
        self.healthy = None if again else self.healthy
        self.mean, self.looks, self.recoveries = None, 0, self.recoveries + 1
        return f"recovered {'the source model' if again else 'the last healthy state'}: {reason}"

    def snapshot(self) -> dict[str, Any]:
        """Copy everything known."""
        return dict(vars(self))

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back what was known."""
        if set(saved) != set(vars(self)):
            raise CheckpointError(f"watch: expected {sorted(vars(self))}, got {sorted(saved)}")
        vars(self).update(copied(dict(saved)))


def _collapsed(classes: float, sure: float, apart: float, usual: list[float], k: int) -> str | None:
    if classes < FEWER_CLASSES * usual[0]:
        return f"the answers use {classes:.1f} classes, usually {usual[0]:.1f}"
    if classes < NARROWER * usual[0] and sure < SURER * usual[1]:
        return f"the answers use {classes:.1f} classes (usually {usual[0]:.1f}) at entropy {sure:.3f} ({usual[1]:.3f})"
    if sure > max(UNSURE * usual[1], RELIABLE * math.log(k)):
        return f"the answers have an entropy of {sure:.2f}, usually {usual[1]:.2f}"
    if apart > LEAST_GAP and apart > WIDER_GAP * usual[2]:
        return f"the energy gap to the samples is {apart:.1f}, usually {usual[2]:.1f}"
    return None
