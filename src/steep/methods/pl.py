"""PL: learn from confident pseudo-labels (Lee, ICML workshop 2013)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor
from torch.nn.functional import cross_entropy

from steep.core.batch import count, mean
from steep.core.constraints import Choice, Layers, Real, hyper
from steep.core.method import Look, Method, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, descend


@dataclass(frozen=True, kw_only=True)
class PL(Method[DescentState]):
    """Treat the predicted class as the label wherever the model is sure of it."""

    name = "pl"
    paper = "Lee, Pseudo-label: the simple and efficient semi-supervised learning method, 2013"
    predicts = "before"
    look = Look("#AA4499", "triangle-right")
    equation = "L = mean over { x : max p(x) > threshold } of −log p(ŷ | x),        ŷ = argmax p(x)"

    lr: float = hyper(1e-5, Real(above=0))
    threshold: float = hyper(0.9, Real(least=0, most=1))  # least probability of a label that is believed
    params: Params = hyper("all", Layers())
    statistics: str = hyper("source", Choice("batch", "source"))

    @classmethod
    def tuned(cls) -> Self:
        """As every other method here: normalisation parameters, batch statistics, rate 1e-3."""
        return cls(lr=1e-3, params="norm", statistics="batch")

    def init(self, source: SourceModel) -> DescentState:
        """Adam on all parameters, running statistics."""
        model = source.prepare(self.params, self.statistics)
        return DescentState(model, adam(model, self.lr))

    def step(self, state: DescentState, x: Tensor) -> Step:
        """Cross-entropy with the predicted class, over the images predicted with probability > threshold."""
        logits = state.model(x)
        sure, labels = logits.detach().softmax(dim=1).max(dim=1)
        confident = sure > self.threshold
        loss = mean(cross_entropy(logits, labels, reduction="none"), confident)
        used = count(confident)
        descend(state.optimizer, loss, when=used > 0)
        return Step(logits, loss=loss.detach(), used=used, reason_if_unused=f"no prediction above {self.threshold}")
