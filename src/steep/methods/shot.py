"""SHOT, online: confident on each image, diverse over the batch (Liang et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from steep.core.batch import mean
from steep.core.constraints import Choice, Layers, Real, hyper
from steep.core.losses import entropy
from steep.core.method import Look, Method, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, descend


@dataclass(frozen=True, kw_only=True)
class Shot(Method[DescentState]):
    """Information maximisation plus confident pseudo-labels; the paper's own is offline, over the whole set."""

    name = "shot"
    paper = "Liang et al., Do we really need to access the source data?, 2020, arXiv:2002.08546"
    predicts = "before"
    look = Look("#E69F00", "square")
    equation = "L = mean H(p(x)) − H(mean p(x)) + w · mean over { max p(x) > threshold } of −log p(ŷ | x)"

    lr: float = hyper(1e-3, Real(above=0))
    threshold: float = hyper(0.9, Real(least=0, most=1))  # least probability of a pseudo-label that is believed
    label_weight: float = hyper(0.3, Real(least=0))  # w
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))

    def init(self, source: SourceModel) -> DescentState:
        """Batch statistics, Adam on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        return DescentState(model, adam(model, self.lr))

    def step(self, state: DescentState, x: Tensor) -> Step:
        """Entropy of each − entropy of the mean prediction + weight × confident pseudo-label loss."""
        logits = state.model(x)
        p = logits.softmax(dim=1)
        average = mean(p)
        diversity = -(average * (average + 1e-5).log()).sum()
        sure, labels = p.detach().max(dim=1)
        labelled = mean(cross_entropy(logits, labels, reduction="none"), where=sure > self.threshold)
        loss = mean(entropy(logits)) - diversity + self.label_weight * labelled
        descend(state.optimizer, loss)
        return Step(logits, loss=loss.detach())
