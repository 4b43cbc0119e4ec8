"""BN: normalise by the statistics of the test batch (Schneider et al., NeurIPS 2020; Nado et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core import layers
from steep.core.method import Look, Method, Need, SourceModel, State, Step


@dataclass(frozen=True, kw_only=True)
class BN(Method[State]):
    """BatchNorm statistics of each batch replace those of the training set; no parameter moves."""

    name = "bn"
    paper = "Schneider et al., Improving robustness … by covariate shift adaptation, 2020, arXiv:2006.16971"
    predicts = "before"
    needs = frozenset({Need.BATCH_NORM})
    moves = False
    look = Look("#56B4E9", "triangle-down")
    equation = "z = γ · (h − mean_B(h)) / √(var_B(h) + ε) + β        B: the test batch"

    def init(self, source: SourceModel) -> State:
        """Switch BatchNorm to batch statistics; a model without BatchNorm is refused."""
        layers.batch_norms(source.model, for_method=self.name)
        return State(source.prepare(params=None, statistics="batch"))

    @torch.no_grad()
    def step(self, state: State, x: Tensor) -> Step:
        """One forward: the statistics follow the batch by themselves."""
        return Step(state.model(x), moved=False)
