"""CMF: ROID with a Kalman filter on the weights in place of a fixed average (Lee and Chang, ICLR 2024)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from steep.core.constraints import Real, hyper
from steep.core.method import Look, SourceModel
from steep.core.optim import average
from steep.methods.roid import Roid, RoidState

PARAMETERS = 38_400  # that adapt in the ViT-B whose noise the paper gives; the noise grows with their number
LEAST_GAIN, FULL_GAIN = 0.89, 0.9999  # β of the published code is at least the one; from the other on it is 1


@dataclass
class CmfState(RoidState):
    """ROID's, with the hidden weights that the filter follows and how uncertain they are."""

    hidden: list[Tensor] = field(default_factory=list)
    variance: Tensor | None = None  # ()


@dataclass(frozen=True, kw_only=True)
class Cmf(Roid):
    """ROID's loss; the weights are averaged with hidden ones, which a Kalman filter draws from source and adapted."""

    name = "cmf"
    paper = "Lee and Chang, Continual momentum filtering on parameter space for online adaptation, 2024, ICLR"
    look = Look("#5AAE61", "square")
    equation = """
        L as in roid
        h ← α h + (1 − α) θ_source,   v ← α² v + q,   β = (1 − q) / (v + 1 − q)
        h ← β h + (1 − β) θ,          v ← β v,        θ ← a θ + (1 − a) h
    """

    keep_hidden: float = hyper(0.99, Real(least=0, most=1))  # α: share of the hidden weights beside the source's
    noise: float = hyper(0.005, Real(least=0))  # q for 38,400 adapted parameters; in proportion for others

    def init(self, source: SourceModel) -> CmfState:
        """ROID's state; the hidden weights start as the source's, with no uncertainty."""
        base = super().init(source)
        hidden, variance = [w.clone() for w in base.origin], base.model.anchor().new_zeros(())
        return CmfState(base.model, base.optimizer, base.origin, base.generator, hidden=hidden, variance=variance)

    @torch.no_grad()
    def ensemble(self, state: RoidState) -> None:
        """Predict the hidden weights, correct them by the adapted ones, and average those with them."""
        if not isinstance(state, CmfState) or state.variance is None:
            raise TypeError(f"state: expected a CmfState, got {type(state).__name__}")
        weights = list(state.model.adapted().values())
        q = self.noise * sum(w.numel() for w in weights) / PARAMETERS
        average(state.hidden, state.origin, self.keep_hidden)
        state.variance.mul_(self.keep_hidden**2).add_(q)
        gain = ((1 - q) / (state.variance + 1 - q)).clamp_min(LEAST_GAIN)
        gain = torch.where(gain < FULL_GAIN, gain, 1)
        state.variance.mul_(gain)
        for hidden, weight in zip(state.hidden, weights, strict=True):
            hidden.lerp_(weight, 1 - gain)
        average(weights, state.hidden, self.keep)
