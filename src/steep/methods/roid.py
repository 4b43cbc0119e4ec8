"""ROID: robust entropy-like loss, weighted images, weights averaged with the source's (Marsden et al., WACV 2024)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from steep.core.augment import view
from steep.core.batch import count, mean, prior_corrected, scaled
from steep.core.constraints import Choice, Layers, Real, Switch, hyper
from steep.core.losses import entropy, soft_likelihood_ratio, symmetric_cross_entropy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step, made_later
from steep.core.optim import DescentState, adam, average, copied, descend, sgd


@dataclass
class RoidState(DescentState):
    """The model, its optimiser, the source parameters, the stream of its views and the mean prediction."""

    origin: list[Tensor]
    generator: torch.Generator
    mean_prediction: Tensor | None = made_later("K")


@dataclass(frozen=True, kw_only=True)
class Roid(Method[RoidState]):
    """Likelihood ratio of certain, diverse images and agreement with a view of each; source weights are mixed in."""

    name = "roid"
    paper = "Marsden et al., Universal test-time adaptation through weight ensembling, 2024, arXiv:2306.00650"
    predicts = "before"
    needs = frozenset({Need.VIEWS})
    look = Look("#1B7837", "circle")
    equation = """
        L = mean of w(x) · [ −Σ_k p_k log (p_k / (1 − p_k)) + SCE(p(x), p(view of x)) ]
        w(x) = exp(diversity · certainty / τ), 0 for images less diverse than the mean
        θ ← a θ + (1 − a) θ_source;   answer: f(x)_k · K · prior_k, prior: smoothed mean prediction of the batch
    """

    lr: float = hyper(1e-3, Real(above=0))
    keep: float = hyper(0.99, Real(least=0, most=1))  # a: share of the adapted weights after each step
    momentum: float = hyper(0.9, Real(least=0, most=1))  # of the mean prediction
    temperature: float = hyper(1 / 3, Real(above=0))  # τ
    mirror: bool = hyper(True, Switch())  # whether a view may be mirrored; not for digits and letters
    optimizer: str = hyper("adam", Choice("adam", "sgd"), added_later=True)  # SGD: Nesterov's, published for ImageNet
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))

    def init(self, source: SourceModel) -> RoidState:
        """Batch statistics, Adam or SGD on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        origin = copied(model.adapted().values())
        by_adam = self.optimizer == "adam"
        optimizer = adam(model, self.lr) if by_adam else sgd(model, self.lr, momentum=0.9, nesterov=True)
        return RoidState(model, optimizer, origin, source.generator())

    def step(self, state: RoidState, x: Tensor) -> Step:
        """One update of the weighted loss of images and views, then a step back towards the source weights."""
        logits = state.model(x)
        if state.mean_prediction is None:
            state.mean_prediction = logits.new_full((logits.shape[1],), 1 / logits.shape[1])
        weight = self.weigh(logits.detach(), state.mean_prediction)
        of_views = state.model(view(x, state.generator, edge="reflection", mirror=self.mirror))
        loss = mean(weight * (soft_likelihood_ratio(logits) + symmetric_cross_entropy(of_views, logits)))
        descend(state.optimizer, loss)
        state.mean_prediction.lerp_(mean(logits.detach().softmax(dim=1)), 1 - self.momentum)
        self.ensemble(state)
        return Step(prior_corrected(logits.detach()), loss.detach(), used=count(weight > 0))

    @torch.no_grad()
    def predict(self, state: RoidState, x: Tensor) -> Tensor:
        """Answer with the model as it is now, corrected by the mean prediction of the batch."""
        return prior_corrected(state.model(x))

    def weigh(self, logits: Tensor, mean_prediction: Tensor) -> Tensor:
        """exp(diversity · certainty / τ), each scaled to [0, 1] over the batch; 0 where diversity is below its mean."""
        diversity = scaled(1 - cosine_similarity(mean_prediction[None], logits.softmax(dim=1), dim=1))
        weight = (diversity * scaled(-entropy(logits)) / self.temperature).exp()
        return torch.where(diversity < mean(diversity), 0, weight)

    def ensemble(self, state: RoidState) -> None:
        """θ ← a θ + (1 − a) θ_source."""
        average(list(state.model.adapted().values()), state.origin, self.keep)

    def passes(self, batch_size: int, images: int) -> float:
        """Images and their views, forward and backward."""
        return 2 * super().passes(batch_size, images)
