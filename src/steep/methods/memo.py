"""MEMO: for each image alone, let the model be sure of the mean over its views (Zhang et al., NeurIPS 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.augment import NUMBERS, augmix
from steep.core.batch import alone, mean, part, size
from steep.core.constraints import Layers, Real, Switch, Whole, hyper
from steep.core.layers import Mixing
from steep.core.losses import entropy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step, backward_passes
from steep.core.optim import DescentState, brought_back, descend, sgd

TOGETHER = 8  # images whose views are made at once


class ConstantMixing(Mixing):
    """Statistics of the views that are constants to the gradient, as in the published code."""

    constant = True


@dataclass
class MemoState(DescentState):
    """The model, which every image finds as the source left it, its optimiser and the stream of its views."""

    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class Memo(Method[MemoState]):
    """One step for each image by itself, on the entropy of its mean prediction over views; then it is forgotten."""

    name = "memo"
    paper = "Zhang et al., MEMO: test time robustness via adaptation and augmentation, 2022, arXiv:2110.09506"
    predicts = "before"
    enough = 1
    needs = frozenset({Need.VIEWS})
    moves = False
    memory_advice = "`copies`"
    look = Look("#8C510A", "cross")
    equation = "θ_x = θ − lr ∇ H(mean of p(v) over the views v of x),        answer: f(x) with θ_x"

    lr: float = hyper(0.005, Real(above=0))
    copies: int = hyper(32, Whole(least=1))  # augmented copies of each image
    updates: int = hyper(1, Whole(least=1))  # for each image, with new views each
    alpha: float = hyper(1 / 17, Real(least=0, most=1))  # share of the views' in BatchNorm statistics
    mirror: bool = hyper(True, Switch())  # whether a view may be mirrored; not for digits and letters
    params: Params = hyper("all", Layers())

    def init(self, source: SourceModel) -> MemoState:
        """Source statistics with a share of the views', SGD without momentum on all parameters."""
        model = source.prepare(self.params, ConstantMixing(share=self.alpha))
        return MemoState(model, sgd(model, self.lr, momentum=0), source.generator())

    def step(self, state: MemoState, x: Tensor) -> Step:
        """For each image: one step on its views, the answer, and back to the source."""
        logits, losses = self.adapt_each(state, x)
        return Step(logits, mean(losses))

    @torch.no_grad()
    def predict(self, state: MemoState, x: Tensor) -> Tensor:
        """Answer each image as a step does."""
        return self.adapt_each(state, x)[0]

    def adapt_each(self, state: MemoState, x: Tensor) -> tuple[Tensor, Tensor]:
        """Give the logits (B, K) of the images, each after its own step, and the losses (B,) before it."""
        weights, shape = [*state.model.adapted().values()], (size(x), self.updates * self.copies, NUMBERS)
        numbers = part(torch.rand(shape, generator=state.generator, device=x.device, dtype=x.dtype))
        logits, losses = [], [x.new_zeros(0)]
        with alone():
            for start in range(0, len(x), TOGETHER):
                images, drawn = x[start : start + TOGETHER], numbers[start : start + TOGETHER]
                for image, views in zip(images, augmix(images, drawn, mirror=self.mirror), strict=True):
                    with brought_back(weights):
                        for some in views.unflatten(0, (self.updates, self.copies)):
                            with torch.enable_grad():
                                loss = entropy(state.model(some).log_softmax(dim=1).logsumexp(dim=0)[None]).squeeze(0)
                                descend(state.optimizer, loss)
                        with torch.no_grad():
                            logits.append(state.model(image[None]))
                    losses.append(loss.detach()[None])
            return torch.cat(logits) if logits else state.model(x), torch.cat(losses)

    def passes(self, batch_size: int, images: int) -> float:
        """The views of an image forward and backward, then the image; an answer costs as much as a step."""
        return self.answer_passes()

    def answer_passes(self) -> float:
        """See `passes`."""
        return self.updates * self.copies * (1 + backward_passes(self.params)) + 1
