"""A method of your own, with a memory: entropy of the surer images of each batch, pulled towards a slow average.

    python examples/custom_method.py

Everything that moves is a field of the state and written in place, so saving, resetting, the guard and graphs work by
themselves. Means and counts over images are those of `steep.core.batch`, so no step waits for the host and several
GPUs may share a batch. The smallest possible method is in CONTRIBUTING.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

import steep
from steep.core.batch import count, mean
from steep.core.classifier import SourceModel
from steep.core.layers import Params
from steep.core.losses import entropy
from steep.core.method import Method, Moment, Step
from steep.core.optim import DescentState, adam, descend


@dataclass
class AnchoredState(DescentState):
    """The model, its optimiser and the slow average of its parameters."""

    average: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Anchored(Method[AnchoredState]):
    """Learn from the surer images of a batch; a slow average of the parameters pulls them back."""

    name: ClassVar = "anchored"
    paper: ClassVar = "–"
    predicts: ClassVar[Moment] = "after"

    lr: float = 1e-3
    pull: float = 0.05  # share of the way back to the average, each step
    momentum: float = 0.99  # of the average
    params: Params = "norm"

    def init(self, source: SourceModel) -> AnchoredState:
        """Batch statistics, Adam on the normalisation parameters, the average where they start."""
        model = source.prepare(self.params, statistics="batch")
        return AnchoredState(model, adam(model, self.lr), [p.detach().clone() for p in model.adapted().values()])

    def step(self, state: AnchoredState, x: Tensor) -> Step:
        """θ ← θ − lr ∇ mean H over the surer images; average ← towards θ; θ ← towards the average."""
        logits = state.model(x)
        h = entropy(logits)
        surer = h.detach() <= mean(h.detach())  # a mask: how many there are is not asked here
        loss = mean(h, surer)
        descend(state.optimizer, loss)
        with torch.no_grad():
            for p, average in zip(state.model.adapted().values(), state.average, strict=True):
                average.lerp_(p, 1 - self.momentum)
                p.lerp_(average, self.pull)
        return Step(logits, loss=loss.detach(), used=count(surer))


if __name__ == "__main__":
    adapter = steep.adapt(steep.models.build("wrn-10-1", 10), Anchored(pull=0.1))
    for _ in range(3):
        adapter(torch.rand(32, 3, 32, 32))
        print(adapter.last)
