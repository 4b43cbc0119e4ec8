"""RDumb: ETA that returns to the source model from time to time (Press et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from steep.core.batch import MovingAverage
from steep.core.constraints import Choice, Real, Whole, hyper
from steep.core.method import Look, SourceModel, Step
from steep.core.optim import copied, make_optimizer, recover
from steep.methods.eta import Eta, EtaState


@dataclass
class RDumbState(EtaState):
    """ETA's, with the source parameters to return to and the number of steps."""

    origin: list[Tensor] = field(default_factory=list)
    steps: Tensor | None = None  # (), of the stream so far


@dataclass(frozen=True, kw_only=True)
class RDumb(Eta):
    """ETA that forgets everything after every 1,000 steps: what a method for long streams has to beat."""

    name = "rdumb"
    paper = "Press et al., RDumb: a simple approach that questions our progress, 2023, arXiv:2306.05401"
    look = Look("#762A83", "wedge")
    equation = "L = L_eta;   every 1,000 steps: θ ← θ_source, optimiser and moving average begin anew"

    lr: float = hyper(2.5e-4, Real(above=0))
    optimizer: str = hyper("sgd", Choice("sgd", "adam"))  # SGD has a momentum of 0.9
    every: int = hyper(1000, Whole(least=1))  # steps between two returns

    @classmethod
    def tuned(cls) -> Self:
        """ETA's scaling to the classes there are, and the optimiser that others use on CIFAR-10."""
        return cls(margin_classes=None, novelty=0.4, optimizer="adam", lr=1e-3)

    def init(self, source: SourceModel) -> RDumbState:
        """Batch statistics, SGD with momentum on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        optimizer = make_optimizer(self.optimizer, model, self.lr)
        origin = copied(model.adapted().values())
        steps = torch.zeros((), dtype=torch.int64, device=model.anchor().device)
        return RDumbState(model, optimizer, origin=origin, steps=steps)

    def step(self, state: EtaState, x: Tensor) -> Step:
        """One of ETA's; where 1,000 have been done since the last return, return to the source model before it."""
        if not isinstance(state, RDumbState) or state.steps is None:
            raise TypeError(f"state: expected an RDumbState, got {type(state).__name__}")
        due = (state.steps > 0) & (state.steps % self.every == 0)
        recover(state.optimizer, state.origin, due)
        if state.mean_prediction is not None:
            MovingAverage(state.mean_prediction, self.momentum).clear(due)
        state.steps.add_(1)
        return super().step(state, x)._replace(leap=due, note=f"returned to the source model after {self.every} steps")
