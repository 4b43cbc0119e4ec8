"""Tent: make predictions confident (Wang et al., ICLR 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steep.core.batch import mean
from steep.core.constraints import Choice, Layers, Real, hyper
from steep.core.losses import LOSSES
from steep.core.method import Look, Method, Params, SourceModel, Step
from steep.core.optim import DescentState, descend, make_optimizer


@dataclass(frozen=True, kw_only=True)
class Tent(Method[DescentState]):
    """Minimise the mean entropy of the predictions by moving the normalisation parameters."""

    name = "tent"
    paper = "Wang et al., Tent: Fully test-time adaptation by entropy minimization, 2021, arXiv:2006.10726"
    predicts = "before"
    look = Look("#0072B2", "triangle-up")
    equation = "L = mean H(p(x)),        H(p) = −Σ_k p_k log p_k"

    lr: float = hyper(1e-3, Real(above=0))
    optimizer: str = hyper("adam", Choice("adam", "sgd"), added_later=True)  # SGD: as published for ImageNet
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))
    loss: str = hyper("entropy", Choice(*LOSSES), added_later=True)

    def init(self, source: SourceModel) -> DescentState:
        """Batch statistics, Adam or SGD on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        return DescentState(model, make_optimizer(self.optimizer, model, self.lr))

    def step(self, state: DescentState, x: Tensor) -> Step:
        """θ ← θ − lr ∇ mean H(softmax f(x))."""
        logits = state.model(x)
        loss = mean(LOSSES[self.loss](logits))
        descend(state.optimizer, loss)
        return Step(logits, loss=loss.detach())
