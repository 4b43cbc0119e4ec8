"""BN: normalise by the statistics of the test batch (Schneider et al., NeurIPS 2020; Nado et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steep.core import layers
from steep.core.classifier import SourceModel
from steep.core.method import Look, Method, Moment, Need, State, Step


@dataclass(frozen=True, kw_only=True)
class BN(Method[State]):
    """BatchNorm statistics of each batch replace those of the training set; no parameter moves."""

    name: ClassVar = "bn"
    paper: ClassVar = "Schneider et al., Improving robustness … by covariate shift adaptation, 2020, arXiv:2006.16971"
    predicts: ClassVar[Moment] = "before"
    needs: ClassVar = frozenset({Need.BATCH_NORM})
    moves: ClassVar = False
    look: ClassVar = Look("#56B4E9", "triangle-down")
    equation: ClassVar = "z = γ · (h − mean_B(h)) / √(var_B(h) + ε) + β        B: the test batch"

    def init(self, source: SourceModel) -> State:
        """Switch BatchNorm to batch statistics; a model without BatchNorm is refused."""
        layers.batch_norms(source.model, for_method=self.name)
        return State(source.prepare(params=None, statistics="batch"))

    @torch.no_grad()
    def step(self, state: State, x: Tensor) -> Step:
        """One forward: the statistics follow the batch by themselves."""
        return Step(state.model(x), moved=False)
