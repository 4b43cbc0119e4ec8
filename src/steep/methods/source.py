"""Source: no adaptation, the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.method import Look, Method, SourceModel, State, Step


@dataclass(frozen=True, kw_only=True)
class Source(Method[State]):
    """The source model as it was trained."""

    name = "source"
    paper = "–"
    predicts = "before"
    moves = False
    baseline = True
    look = Look("#707070", "cross")
    equation = "ŷ = argmax f(x)"

    def init(self, source: SourceModel) -> State:
        """Nothing to configure: running statistics, no gradients."""
        return State(source.prepare(params=None, statistics="source"))

    @torch.no_grad()
    def step(self, state: State, x: Tensor) -> Step:
        """Answer, and leave the model alone."""
        return Step(state.model(x), used=0, moved=False)
