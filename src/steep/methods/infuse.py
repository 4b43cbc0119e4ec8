"""Infuse: lower the energy of image and mirror image, let both agree and all classes occur, stay near the source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.answers import variety, variety_of
from steep.core.batch import mean, size
from steep.core.constraints import Layers, Real, Switch, hyper
from steep.core.losses import energy, soft_cross_entropy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step, backward_passes
from steep.core.optim import adam, average, copied, descend
from steep.core.statistics import MixingState
from steep.core.views import mean_answer, with_mirror


@dataclass
class InfuseState(MixingState):
    """Model, optimiser and the source parameters."""

    origin: list[Tensor]


@dataclass(frozen=True, kw_only=True)
class Infuse(Method[InfuseState]):
    """Energy, consistency of both views, diversity of the answers, and a pull to the source."""

    name = "infuse"
    paper = "steep's own; its first term is TEA's, arXiv:2311.14402"
    predicts = "before"
    needs = frozenset({Need.VIEWS})
    look = Look("#7A1FA2", "cross")
    equation = """
        L = mean E(v) + c · mean −Σ_k q_k log p(v)_k − d · min(H(mean p(v)), H_B),        v: image x and mirror image x̄
        E(v) = −log Σ_k exp f(v)_k,        q = (p(x) + p(x̄)) / 2 without gradient
        H_B = log K − log(1 + (K − 1) / B),        the variety that B images of K even classes show
        θ ← θ − lr · Adam(∇L),        θ ← θ + pull · (θ_source − θ)
    """

    lr: float = hyper(1e-3, Real(above=0))
    consistency: float = hyper(0.5, Real(least=0))  # c
    diversity: float = hyper(3.0, Real(least=0))  # d
    pull: float = hyper(0.01, Real(least=0, most=1))
    mirror: bool = hyper(True, Switch())  # False where a mirror changes the class, as with digits
    params: Params = hyper("norm", Layers())

    def init(self, source: SourceModel) -> InfuseState:
        """Batch statistics, Adam on the normalisation parameters."""
        model = source.prepare(self.params, "batch")
        return InfuseState(model, adam(model, self.lr), copied(model.adapted().values()))

    def step(self, state: InfuseState, x: Tensor) -> Step:
        """Go down L on the images and their mirror images, then a little back to the source."""
        views = 1 + self.mirror
        logits = state.model(with_mirror(x, self.mirror))  # (views · B, K)
        loss = objective(logits, size(x), views, self.consistency, self.diversity)
        descend(state.optimizer, loss)
        average(list(state.model.adapted().values()), state.origin, keep=1 - self.pull)
        return Step(mean_answer(logits.detach().chunk(views)), loss=loss.detach())

    @torch.no_grad()
    def predict(self, state: InfuseState, x: Tensor) -> Tensor:
        """Answer with the mean of both views."""
        return mean_answer(state.model(with_mirror(x, self.mirror)).chunk(1 + self.mirror))

    def passes(self, batch_size: int, images: int) -> float:
        """Both views forward and backward."""
        return (1 + self.mirror) * (1 + backward_passes(self.params))


def objective(logits: Tensor, images: int, views: int, consistency: float, diversity: float) -> Tensor:
    """Energy + c · cross-entropy to the mean of all views − d · entropy of the mean answer, where it is too low."""
    target = mean_answer(logits.detach().chunk(views)).repeat(views, 1)
    enough = variety(logits).clamp_max(variety_of(images, logits.shape[1]))
    return mean(energy(logits) + consistency * soft_cross_entropy(logits, target)) - diversity * enough
