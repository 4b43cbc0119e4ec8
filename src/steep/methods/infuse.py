"""Infuse: energy, consistency, diversity and a pull to the source, answered by whom the images show to be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steep.core.answers import for_uneven_classes, variety
from steep.core.batch import mean, size
from steep.core.classifier import SourceModel
from steep.core.constraints import Layers, Real, Switch, Whole, hyper
from steep.core.layers import Params
from steep.core.losses import energy, soft_cross_entropy
from steep.core.method import Look, Method, Moment, Need, Step, backward_passes
from steep.core.optim import adam, average, descend
from steep.core.trust import FIRST, TrustState
from steep.core.views import mean_answer, with_mirror


@dataclass(frozen=True, kw_only=True)
class Infuse(Method[TrustState]):
    """Lower the energy of image and mirror image, let both agree and all classes occur; rest where that must fail."""

    name: ClassVar = "infuse"
    paper: ClassVar = "steep's own; its first term is TEA's, arXiv:2311.14402"
    predicts: ClassVar[Moment] = "before"
    needs: ClassVar = frozenset({Need.VIEWS})
    bears_few_classes: ClassVar = True
    look: ClassVar = Look("#7A1FA2", "cross")
    equation: ClassVar = """
        L = mean E(v) + c · mean −Σ_k q_k log p(v)_k − d · H(mean p(v)),        v: image x and mirror image x̄
        E(v) = −log Σ_k exp f(v)_k,        q = (p(x) + p(x̄)) / 2 without gradient
        θ ← θ − lr · Adam(∇L),        θ ← θ + pull · (θ_source − θ)
    """

    lr: float = hyper(1e-3, Real(above=0))
    consistency: float = hyper(0.5, Real(least=0))  # c
    diversity: float = hyper(3.0, Real(least=0))  # d
    pull: float = hyper(0.01, Real(least=0, most=1))
    newest: float = hyper(0.05, Real(above=0, most=1))  # least share of a batch in the statistics of the stream
    full: int = hyper(50, Whole(least=1))  # images that a step needs: smaller batches wait for the next
    every: int = hyper(8, Whole(least=1))  # full batches from one look at whom to trust to the next
    mirror: bool = hyper(True, Switch())  # False where a mirror changes the class, as with digits
    params: Params = hyper("norm", Layers())

    def init(self, source: SourceModel) -> TrustState:
        """Adam on the normalisation parameters."""
        model = source.prepare(self.params, "batch")
        return TrustState(model, adam(model, self.lr), *TrustState.begin(model))

    def step(self, state: TrustState, x: Tensor) -> Step:
        """Go down L on the images and their mirror images, then a little back to the source."""
        images = x
        if size(x) < self.full:  # answered at once, and learned from when enough have come
            answer = self.predict(state, x)
            if not state.gather(x, answer, self.full):
                return Step(answer, used=0, moved=False, note="waiting for more images")
            images = state.gathered()
        logits = state.forward(with_mirror(images, self.mirror), self.newest)
        if not self.repeats(state, x):
            state.look(images, logits.detach()[: len(images)])
        if images is x:
            by_batch = state.trusted == "batch"
            answer = mean_answer(logits.detach().chunk(1 + self.mirror)) if by_batch else self.predict(state, x)
        if state.uneven:
            return Step(answer, used=0, moved=False, note="too few classes to learn from; only statistics took it in")
        loss = objective(logits, 1 + self.mirror, self.consistency, self.diversity)
        descend(state.optimizer, loss)
        average(list(state.model.adapted().values()), state.origin, keep=1 - self.pull)
        return Step(answer, loss=loss.detach())

    @torch.no_grad()
    def predict(self, state: TrustState, x: Tensor) -> Tensor:
        """Answer by whom the last look trusts, averaged over both views; a small batch needs the stream's help."""
        by = "both" if state.trusted == "batch" and size(x) < self.full else state.trusted
        logits = mean_answer(state.answer(with_mirror(x, self.mirror), by).chunk(1 + self.mirror))
        return for_uneven_classes(logits) if state.uneven else logits

    def repeats(self, state: TrustState, x: Tensor) -> bool:
        """From one look at whom to trust to the next: at first, every few batches, where the batch is not trusted."""
        looks = state.trusted != "batch" or state.uneven or state.model.since_reset < FIRST
        return size(x) >= self.full and not looks and state.model.since_reset % self.every != 0

    def passes(self, batch_size: int, images: int) -> float:
        """Both views forward and backward, two more forwards at a look; small batches are answered once more."""
        views, batches, together = 1 + self.mirror, -(-images // batch_size), -(-self.full // batch_size)
        step = views * (1 + backward_passes(self.params))
        if together > 1:
            return views + (step + 2) * (batches // together) * together / batches
        return step + 2 * len({*range(min(FIRST, batches)), *range(0, batches, self.every)}) / batches


def objective(logits: Tensor, views: int, consistency: float, diversity: float) -> Tensor:
    """Energy + c · cross-entropy to the mean of all views − d · entropy of the mean answer."""
    target = mean_answer(logits.detach().chunk(views)).repeat(views, 1)
    return mean(energy(logits) + consistency * soft_cross_entropy(logits, target)) - diversity * variety(logits)
