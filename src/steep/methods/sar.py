"""SAR: sharpness-aware and reliable entropy minimisation (Niu et al., ICLR 2023)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from steep.core.descent import DescentState
from steep.core.losses import entropy
from steep.core.method import Method, Moment, Step
from steep.core.norm import Params
from steep.core.sam import worst_nearby
from steep.core.source import Source


@dataclass
class SarState(DescentState):
    """The model, its optimiser, the source parameters to fall back on and the average of the entropy."""

    origin: list[Tensor]
    mean_entropy: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Sar(Method[SarState]):
    """Entropy of reliable images, its gradient taken at the worst point nearby; collapse brings the source back."""

    name: ClassVar = "sar"
    paper: ClassVar = "Niu et al., Towards stable test-time adaptation in dynamic wild world, 2023"
    predicts: ClassVar[Moment] = "before"

    lr: float = 0.01
    momentum: float = 0.9
    radius: float = 0.05  # ρ
    margin: float = 0.4  # E0 = margin · ln(margin_classes): images above are unreliable
    margin_classes: int | None = 1000  # None: the model's own number of classes
    recover_below: float = 0.2  # moving average of the entropy under which the model has collapsed
    params: Params = "norm"
    statistics: str = "batch"

    @classmethod
    def tuned(cls) -> Self:
        """Scale E0 to the classes there are: 0.4 ln 1000 is more than ln 10, so it filters nothing there."""
        return cls(margin_classes=None)

    def init(self, source: Source) -> SarState:
        """Batch statistics, SGD with momentum on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        params = list(model.adapted().values())
        optimizer = torch.optim.SGD(params, lr=self.lr, momentum=self.momentum)
        return SarState(model, optimizer, [p.detach().clone() for p in params])

    def step(self, state: SarState, x: Tensor) -> Step:
        """Two passes: the first finds the worst point nearby, the second gives the gradient there."""
        logits = state.model(x)
        h = entropy(logits)
        e0 = self.margin * math.log(self.margin_classes or logits.shape[1])
        reliable = h.detach() < e0
        if not reliable.any():
            return Step(logits, used=0, moved=False, note="no reliable image")
        h[reliable].mean().backward()  # type: ignore[no-untyped-call]

        with worst_nearby(list(state.model.adapted().values()), self.radius):
            h = entropy(state.model(x))
            reliable = reliable & (h.detach() < e0)  # the model has moved: filter again
            if not reliable.any():
                return Step(logits, used=0, moved=False, note="no reliable image at the worst point nearby")
            loss = h[reliable].mean()
            loss.backward()  # type: ignore[no-untyped-call]
        state.optimizer.step()
        state.optimizer.zero_grad(set_to_none=True)

        old, new = state.mean_entropy, loss.detach()
        state.mean_entropy = new if old is None else 0.9 * old + 0.1 * new
        note = self.recover(state) if state.mean_entropy < self.recover_below else None
        return Step(logits, loss=loss.detach(), used=reliable.sum(), leap=note is not None, note=note)

    @torch.no_grad()
    def recover(self, state: SarState) -> str:
        """Return to the source model and forget momentum and average."""
        for p, source in zip(state.model.adapted().values(), state.origin, strict=True):
            p.copy_(source)
        state.optimizer.state.clear()
        state.mean_entropy = None
        return "recovered the source model: the entropy had collapsed"
