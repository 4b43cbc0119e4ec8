"""T3A: class prototypes made of sure test images (Iwasawa & Matsuo, NeurIPS 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from steep.core.batch import first, size
from steep.core.constraints import Choice, Whole, hyper
from steep.core.features import features_of, require_head
from steep.core.losses import entropy, widen
from steep.core.method import Look, Method, Need, SourceModel, State, Step, made_later


@dataclass
class T3AState(State):
    """The model and, for each class, the features that stand for it. Both are None until a batch has shown the head."""

    supports: Tensor | None = made_later("K", "M", "D")  # of length 1; 0 where there is none yet. Of all: their sum
    doubt: Tensor | None = made_later("K", "M")  # entropies; inf where there is none yet


@dataclass(frozen=True, kw_only=True)
class T3A(Method[T3AState]):
    """Answer by the likeness to class prototypes, the mean features of the surest test images; no gradient."""

    name = "t3a"
    paper = "Iwasawa and Matsuo, Test-time classifier adjustment module …, 2021, NeurIPS"
    predicts = "after"
    enough = 1
    memory_advice = "`supports`"
    needs = frozenset({Need.FEATURES})
    look = Look("#4D4D9F", "cross")
    equation = """
        f(x)_k = φ(x) · c_k,        c_k = Σ of S_k, scaled to length 1
        S_k: of all φ(x) / ‖φ(x)‖ with ŷ(x) = k, the M of least entropy; at first the weights of the last layer
    """

    supports: int | None = hyper(20, Whole(least=1, optional=True))  # M; the paper: 1, 5, 20, 50, 100 or None, all
    statistics: str = hyper("source", Choice("batch", "source"))

    def init(self, source: SourceModel) -> T3AState:
        """Source statistics, no gradients, nothing known of the classes yet."""
        require_head(source.model, self.name)
        return T3AState(source.prepare(params=None, statistics=self.statistics))

    @torch.no_grad()
    def step(self, state: T3AState, x: Tensor) -> Step:
        """Let the features of the batch stand for the classes that the last layer sees in them."""
        logits, features, head = features_of(state.model, x)
        if state.supports is None or state.doubt is None:
            state.supports, state.doubt = self.start(head)
        answer = self.answer(state.supports, logits, features)
        self.learn(state.supports, state.doubt, first(logits, size(x)), first(features, size(x)))
        return Step(answer)

    @torch.no_grad()
    def predict(self, state: T3AState, x: Tensor) -> Tensor:
        """Answer by the prototypes as they are now."""
        logits, features, head = features_of(state.model, x)
        supports = self.start(head)[0] if state.supports is None else state.supports
        return self.answer(supports, logits, features)

    def answer(self, supports: Tensor, logits: Tensor, features: Tensor) -> Tensor:
        """φ · c; a class that the model rules out stays so, and where it has no answer, there is none."""
        likeness = widen(features @ normalize(supports.sum(dim=1), dim=1).T)
        return (likeness + 0 * logits.amax(dim=1, keepdim=True)).masked_fill(logits.isneginf(), -torch.inf)

    def repeats(self, state: T3AState, x: Tensor) -> bool:
        """Once there are prototypes."""
        return state.supports is not None

    def start(self, head: nn.Linear) -> tuple[Tensor, Tensor]:
        """Take the weights of each class for the features of an image."""
        weights = widen(head.weight)
        supports = weights.new_zeros((len(weights), self.supports or 1, weights.shape[1]))
        doubt = weights.new_full(supports.shape[:2], torch.inf)
        self.learn(supports, doubt, widen(head(head.weight)), weights)
        return supports, doubt

    def learn(self, supports: Tensor, doubt: Tensor, logits: Tensor, features: Tensor) -> None:
        """Take in a batch, in place; of each class the surest remain."""
        h, z = entropy(logits).to(doubt.dtype), normalize(features, dim=1)
        mine = logits.argmax(dim=1) == torch.arange(len(supports), device=logits.device)[:, None]  # (K, B)
        if self.supports is None:
            supports[:, 0] += mine.to(z.dtype) @ z
            return
        least, which = torch.cat([doubt, torch.where(mine, h, torch.inf)], dim=1).topk(self.supports, largest=False)
        kept = supports.gather(1, which.clamp_max(self.supports - 1)[:, :, None].expand_as(supports))
        new = z[(which - self.supports).clamp_min(0)]
        chosen = torch.where((which < self.supports)[:, :, None], kept, new)
        supports.copy_(torch.where(least.isfinite()[:, :, None], chosen, 0))
        doubt.copy_(least)
