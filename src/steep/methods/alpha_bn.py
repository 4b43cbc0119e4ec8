"""Alpha-BN: source and test statistics mixed (You et al., 2021; by batch size: Schneider et al., NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.constraints import Choice, Real, Whole, hyper
from steep.core.layers import Mixing, batch_norms, keep_mixtures, mixtures
from steep.core.method import Look, Method, Need, SourceModel, State, Step


@dataclass(frozen=True, kw_only=True)
class AlphaBN(Method[State]):
    """BatchNorm normalises by a mixture of source and test statistics, which a batch of one bears too."""

    name = "alpha-bn"
    paper = "You et al., Test-time batch statistics calibration for covariate shift, 2021, arXiv:2110.04065"
    predicts = "before"
    enough = 1
    needs = frozenset({Need.BATCH_NORM})
    moves = False
    look = Look("#1B9E9E", "triangle-down")
    equation = """
        z = γ · (h − μ) / √(σ² + ε) + β
        μ = (1 − α) μ_source + α mean_B(h),   σ² alike        B: the test batch of n images
        α fixed, or n / (n + prior);   over the stream: μ_source ← μ,   σ²_source ← σ²
    """

    alpha: float = hyper(0.1, Real(least=0, most=1))  # how much the test batch weighs
    prior: int | None = hyper(None, Whole(least=0, optional=True))  # N: a batch of n weighs n / (n + N), not `alpha`
    average: str = hyper("batch", Choice("batch", "stream"))  # "stream": mixed with what came before, not the source

    def __post_init__(self) -> None:
        """The average over a stream moves; the mixture of one batch leaves the model as it is."""
        super().__post_init__()
        object.__setattr__(self, "moves", self.average == "stream")

    def init(self, source: SourceModel) -> State:
        """Mixed statistics; a model without running ones is refused."""
        batch_norms(source.model, for_method=self.name, running=True)
        mixing = Mixing(prior=self.prior) if self.prior is not None else Mixing(share=self.alpha)
        return State(source.prepare(params=None, statistics=mixing))

    @torch.no_grad()
    def step(self, state: State, x: Tensor) -> Step:
        """One forward, in which each layer mixes; over a stream, its mixture is what the next batch is mixed with."""
        if not self.moves:
            return Step(state.model(x), moved=False)
        with mixtures(state.model) as seen, state.model.uncompiled():
            logits = state.model(x)
        keep_mixtures(seen)
        return Step(logits)
