"""SAR: sharpness-aware and reliable entropy minimisation (Niu et al., ICLR 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from steep.core.batch import MovingAverage, count, mean
from steep.core.constraints import Choice, Layers, Real, Whole, hyper
from steep.core.losses import LOSSES, entropy
from steep.core.method import Look, Method, Params, SourceModel, Step
from steep.core.optim import DescentState, backward, copied, recover, sgd, update, worst_nearby


@dataclass
class SarState(DescentState):
    """The model, its optimiser, the source parameters to fall back on and the average of the entropy."""

    origin: list[Tensor]
    mean_entropy: Tensor  # negative until there was a reliable image


@dataclass(frozen=True, kw_only=True)
class Sar(Method[SarState]):
    """Entropy of reliable images, its gradient taken at the worst point nearby; collapse brings the source back."""

    name = "sar"
    paper = "Niu et al., Towards stable test-time adaptation in dynamic wild world, 2023, arXiv:2302.12400"
    predicts = "before"
    look = Look("#009E73", "stroke")
    equation = """
        L(θ) = mean over { x : H(p(x)) < E0 } of H(p(x))
        θ ← θ − lr ∇L(θ + ρ ∇L(θ) / ‖∇L(θ)‖)
    """

    lr: float = hyper(0.01, Real(above=0))
    momentum: float = hyper(0.9, Real(least=0, most=1))  # of the optimiser
    radius: float = hyper(0.05, Real(least=0))  # ρ
    margin: float = hyper(0.4, Real(least=0))  # E0 = margin · ln(margin_classes): images above are unreliable
    margin_classes: int | None = hyper(1000, Whole(least=2, optional=True))  # None: as many as the model has
    recover_below: float = hyper(0.2, Real())  # moving average of the entropy under which the model has collapsed
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))
    loss: str = hyper("entropy", Choice(*LOSSES), added_later=True)

    @classmethod
    def tuned(cls) -> Self:
        """Scale E0 to the classes there are: 0.4 ln 1000 is more than ln 10, so it filters nothing there."""
        return cls(margin_classes=None)

    def init(self, source: SourceModel) -> SarState:
        """Batch statistics, SGD with momentum on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        origin = copied(model.adapted().values())
        average = MovingAverage.unset(model.anchor().new_empty(()))
        return SarState(model, sgd(model, self.lr, self.momentum), origin, average)

    def step(self, state: SarState, x: Tensor) -> Step:
        """Two passes: the first finds the worst point nearby, the second gives the gradient there."""
        logits = state.model(x)
        e0 = self.margin * math.log(self.margin_classes or logits.shape[1])
        reliable = entropy(logits.detach()) < e0
        backward(mean(LOSSES[self.loss](logits), reliable))
        with worst_nearby(list(state.model.adapted().values()), self.radius):
            nearby = state.model(x)
            h = entropy(nearby.detach())
            reliable = reliable & (h < e0)  # the model has moved: filter again
            loss = mean(LOSSES[self.loss](nearby), reliable)
            backward(loss)
        used = count(reliable)
        update(state.optimizer, when=used > 0)
        average = MovingAverage(state.mean_entropy, momentum=0.9)
        average.update(mean(h, reliable), when=used > 0)
        collapsed = (used > 0) & (average.value < self.recover_below)
        recover(state.optimizer, state.origin, collapsed)
        average.clear(collapsed)
        note = "recovered the source model: the entropy had collapsed"
        return Step(logits, loss.detach(), used, leap=collapsed, note=note, reason_if_unused="no reliable image")

    def passes(self, batch_size: int, images: int) -> float:
        """Two passes forward, two backward."""
        return 2 * super().passes(batch_size, images)
