"""LAME: answers that agree with those of similar images (Boudiaf et al., CVPR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from steep.core.batch import first, part, size
from steep.core.constraints import Choice, Whole, hyper
from steep.core.features import features_of, require_head
from steep.core.losses import widen
from steep.core.method import Look, Method, Need, SourceModel, State, Step


@dataclass(frozen=True, kw_only=True)
class Lame(Method[State]):
    """Correct the answers of a batch so that images with similar features get similar ones; the model stays."""

    name = "lame"
    paper = "Boudiaf et al., Parameter-free online test-time adaptation, 2022, arXiv:2201.05718"
    predicts = "before"
    enough = 1
    needs = frozenset({Need.FEATURES})
    moves = False
    look = Look("#B15928", "square")
    equation = """
        min over z of Σ_i KL(z_i ‖ p(x_i)) − Σ_ij w_ij z_i · z_j
        z_i ∝ p(x_i) · exp(Σ_j w_ij z_j),   from z = p on, again and again
        w_ij = exp(−‖φ_i − φ_j‖² / 2σ²),   φ: features, scaled to length 1
        σ: mean distance of an image to the k-th nearest, itself the first
    """

    affinity: str = hyper("rbf", Choice("rbf", "neighbours"))  # "neighbours": w = 1 for the k nearest, else 0
    neighbours: int = hyper(5, Whole(least=1))  # k
    iterations: int = hyper(100, Whole(least=1))  # of the update of z, always all of them
    statistics: str = hyper("source", Choice("batch", "source"))

    def init(self, source: SourceModel) -> State:
        """Source statistics, no gradients."""
        require_head(source.model, self.name)
        return State(source.prepare(params=None, statistics=self.statistics))

    def step(self, state: State, x: Tensor) -> Step:
        """Answer, and leave the model alone."""
        return Step(self.predict(state, x), moved=False)

    @torch.no_grad()
    def predict(self, state: State, x: Tensor) -> Tensor:
        """One forward, then f(x_i) + Σ_j w_ij z_j, whose softmax is z_i."""
        logits, features, _ = features_of(state.model, x)
        logits, features = (first(t, size(x)) for t in (logits, features))  # all images that the ranks have
        w = self.affinities(normalize(features, dim=1)).to(logits.dtype)
        z, corrected = logits.softmax(dim=1), logits
        for _ in range(self.iterations):
            corrected = torch.addmm(logits, w, z)
            z = corrected.softmax(dim=1)
        return widen(part(corrected))

    def affinities(self, features: Tensor) -> Tensor:
        """(B, B), from features (B, D)."""
        if not len(features):
            return features.new_zeros(0, 0)
        distance = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
        if self.affinity == "neighbours":
            others = distance.fill_diagonal_(torch.inf)  # an image is no neighbour of its own
            which = others.topk(min(self.neighbours, len(features) - 1), largest=False).indices
            return torch.zeros_like(distance).scatter_(1, which, 1.0)
        sigma = distance.topk(min(self.neighbours, len(features)), largest=False).values[:, -1].mean()
        return (-(distance**2) / (2 * sigma**2).clamp_min(torch.finfo(distance.dtype).tiny)).exp()
