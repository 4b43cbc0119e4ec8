"""Energy: TEA without its samples. It lowers the energy of the test images and does nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from steep.core.batch import mean
from steep.core.constraints import Choice, Layers, Real, hyper
from steep.core.losses import energy
from steep.core.method import Look, Method, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, descend


@dataclass(frozen=True, kw_only=True)
class Energy(Method[DescentState]):
    """Lower the mean energy of the test images: the first term of TEA's loss, without the second."""

    name = "energy"
    paper = "The first term of Yuan et al., TEA: Test-time Energy Adaptation, 2024, arXiv:2311.14402"
    predicts = "after"
    look = Look("#F0A500", "diamond")
    equation = "L = mean E(x),        E(x) = −log Σ_k exp f(x)_k"

    lr: float = hyper(1e-3, Real(above=0))
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))

    def init(self, source: SourceModel) -> DescentState:
        """Batch statistics, Adam on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        return DescentState(model, adam(model, self.lr))

    def step(self, state: DescentState, x: Tensor) -> Step:
        """θ ← θ − lr ∇ mean E(x)."""
        logits = state.model(x)
        loss = mean(energy(logits))
        descend(state.optimizer, loss)
        return Step(logits, loss=loss.detach())
