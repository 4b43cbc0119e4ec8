"""AEA: adaptive energy alignment, without samples (Choi et al., ICLR 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from steep.core.batch import first, mean, size
from steep.core.constraints import Choice, Layers, Real, hyper
from steep.core.features import features_of, require_head
from steep.core.losses import energy, entropy, widen
from steep.core.method import Look, Method, Need, Params, SourceModel, Step
from steep.core.optim import DescentState, descend, sgd


@dataclass(frozen=True, kw_only=True)
class AEA(Method[DescentState]):
    """Entropy, plus energies brought down to those of the surer half, plus logits turned towards their class's."""

    name = "aea"
    paper = "Choi et al., Adaptive energy alignment for accelerating test-time adaptation, 2025, ICLR"
    predicts = "before"
    needs = frozenset({Need.FEATURES})
    look = Look("#8C2D04", "triangle-up")
    equation = """
        L = mean H(p(x)) + λ2 mean softplus(E(x) − E_low)
            + λ3 mean over { p(ŷ | x) ≥ τ } of exp(p(ŷ | x) − τ) · (1 − cos(f(x), (W Wᵀ)_ŷ))
        E_low: mean of the lower half of the energies,        W: weights of the last layer
    """

    lr: float = hyper(1e-3, Real(above=0))
    momentum: float = hyper(0.9, Real(least=0, most=1))  # of SGD, Nesterov's
    energy_weight: float = hyper(1.0, Real(least=0))  # λ2
    turn_weight: float = hyper(25.0, Real(least=0))  # λ3; the paper tries 1 to 30
    threshold: float = hyper(0.99, Real(least=0, most=1))  # τ
    lower: float = hyper(0.5, Real(above=0, most=1))  # which part of the energies counts as low: a half, a third, …
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))

    def init(self, source: SourceModel) -> DescentState:
        """Batch statistics, SGD with Nesterov's momentum on the normalisation parameters."""
        require_head(source.model, self.name)
        model = source.prepare(self.params, self.statistics)
        return DescentState(model, sgd(model, self.lr, self.momentum, nesterov=True))

    def step(self, state: DescentState, x: Tensor) -> Step:
        """θ ← θ − lr ∇L."""
        logits, _, head = features_of(state.model, x)
        sure, label = logits.detach().softmax(dim=1).max(dim=1)
        weights = widen(head.weight.detach())
        of_class = (weights @ weights.T)[label]  # what the last layer answers to the weights of that class
        finite = logits.masked_fill(logits.isneginf(), 0)  # a class that the model rules out has no direction
        turned = (sure - self.threshold).exp() * (1 - cosine_similarity(finite, of_class.to(logits.dtype), dim=1))
        loss = (
            mean(entropy(logits))
            + self.energy_weight * mean(softplus(energy(logits) - self.low(energy(logits.detach()))))
            + self.turn_weight * mean(turned, sure >= self.threshold)
        )
        descend(state.optimizer, loss)
        return Step(logits, loss=loss.detach())

    def low(self, energies: Tensor) -> Tensor:
        """Mean of the lowest part of a batch's energies, rounded up to whole images."""
        images = size(energies)
        parts = int(1 / self.lower)
        return first(energies, images).sort().values[: -(-images // parts)].mean()
