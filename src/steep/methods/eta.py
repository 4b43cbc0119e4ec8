"""ETA: entropy of reliable and novel images only (Niu et al., ICML 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor
from torch.nn.functional import cosine_similarity

from steep.core.batch import MovingAverage, count, mean
from steep.core.constraints import Choice, Layers, Real, Whole, hyper
from steep.core.losses import LOSSES, entropy
from steep.core.method import Look, Method, Params, SourceModel, Step, made_later
from steep.core.optim import DescentState, descend, make_optimizer


@dataclass
class EtaState(DescentState):
    """The model, its optimiser and the moving average of the predictions it learnt from."""

    mean_prediction: Tensor | None = made_later("K")  # negative until something was learnt


@dataclass(frozen=True, kw_only=True)
class Eta(Method[EtaState]):
    """Weighted entropy of the images that are reliable (low entropy) and unlike what was learnt before."""

    name = "eta"
    paper = "Niu et al., Efficient test-time model adaptation without forgetting, 2022, arXiv:2204.02610"
    predicts = "before"
    look = Look("#CC79A7", "wedge")
    equation = """
        L = mean over S of exp(E0 − H(p(x))) · H(p(x))
        S = { x : H(p(x)) < E0  and  |cos(p(x), m)| < d },        m ← moving average of the mean p over S
    """

    lr: float = hyper(1e-3, Real(above=0))
    margin: float = hyper(0.4, Real(least=0))  # E0 = margin · ln(margin_classes): images above are unreliable
    margin_classes: int | None = hyper(1000, Whole(least=2, optional=True))  # None: as many as the model has
    novelty: float = hyper(0.05, Real(least=0))  # d: greatest cosine similarity to the mean prediction
    momentum: float = hyper(0.9, Real(least=0, most=1))  # of the mean prediction
    optimizer: str = hyper("adam", Choice("adam", "sgd"), added_later=True)  # SGD: as published for ImageNet
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))
    loss: str = hyper("entropy", Choice(*LOSSES), added_later=True)

    @classmethod
    def tuned(cls) -> Self:
        """Scale E0 to the classes there are: 0.4 ln 1000 is more than ln 10, so it filters nothing there."""
        return cls(margin_classes=None, novelty=0.4)

    def init(self, source: SourceModel) -> EtaState:
        """Batch statistics, Adam or SGD on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        return EtaState(model, make_optimizer(self.optimizer, model, self.lr))

    def step(self, state: EtaState, x: Tensor) -> Step:
        """Mean of exp(E0 − H) · H over the chosen images, plus the penalty of a subclass."""
        logits = state.model(x)
        h = entropy(logits.detach())
        p = logits.detach().softmax(dim=1)
        e0 = self.margin * math.log(self.margin_classes or logits.shape[1])
        if state.mean_prediction is None:
            state.mean_prediction = MovingAverage.unset(p.new_empty(p.shape[1]))
        average = MovingAverage(state.mean_prediction, self.momentum)
        novel = cosine_similarity(average.value[None], p, dim=1).abs() < self.novelty
        chosen = (h < e0) & (novel | ~average.started)
        used = count(chosen)
        weight = (e0 - h).exp()
        loss = mean(weight * LOSSES[self.loss](logits), chosen) + self.penalty(state)
        descend(state.optimizer, loss, when=used > 0)
        average.update(mean(p, chosen), when=used > 0)
        return Step(logits, loss=loss.detach(), used=used, reason_if_unused="no reliable and novel image")

    def penalty(self, state: EtaState) -> Tensor | float:
        """Nothing holds ETA's parameters back."""
        return 0.0
