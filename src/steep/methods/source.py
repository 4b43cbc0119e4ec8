"""Source: no adaptation, the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steep.core.classifier import SourceModel
from steep.core.method import Look, Method, Moment, State, Step


@dataclass(frozen=True, kw_only=True)
class Source(Method[State]):
    """The source model as it was trained."""

    name: ClassVar = "source"
    paper: ClassVar = "–"
    predicts: ClassVar[Moment] = "before"
    moves: ClassVar = False
    baseline: ClassVar = True
    look: ClassVar = Look("#707070", "cross")
    equation: ClassVar = "ŷ = argmax f(x)"

    def init(self, source: SourceModel) -> State:
        """Nothing to configure: running statistics, no gradients."""
        return State(source.prepare(params=None, statistics="source"))

    @torch.no_grad()
    def step(self, state: State, x: Tensor) -> Step:
        """Answer, and leave the model alone."""
        return Step(state.model(x), used=0, moved=False)
