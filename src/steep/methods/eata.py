"""EATA: ETA that does not forget (Niu et al., ICML 2022)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from steep.core.classifier import Classifier
from steep.core.constraints import Real, Whole, hyper
from steep.core.method import Look, Need, SourceModel
from steep.core.optim import check_gradient
from steep.errors import InputError, SteepWarning
from steep.methods.eta import Eta, EtaState


@dataclass
class EataState(EtaState):
    """ETA's, with the source parameters and how much each of them matters."""

    importance: list[Tensor] = field(default_factory=list)  # diagonal Fisher information, as the parameters
    origin: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Eata(Eta):
    """ETA with a penalty on moving parameters that matter to source images: `adapt(..., source=batches)`."""

    name = "eata"
    predicts = "before"
    needs = frozenset({Need.SOURCE_IMAGES})
    look = Look("#882255", "arrow")
    equation = "L = L_eta + α Σ_i F_i (θ_i − θ_i,source)²,   F_i = mean of (∂ −log p(ŷ | x_source) / ∂θ_i)²"

    fisher_weight: float = hyper(2000.0, Real(least=0))  # α
    fisher_images: int = hyper(2000, Whole(least=1))  # source images looked at

    @classmethod
    def tuned(cls) -> Self:
        """ETA's scaling, and the weight others use on CIFAR-10."""
        return cls(margin_classes=None, novelty=0.4, fisher_weight=1.0)

    def init(self, source: SourceModel) -> EataState:
        """ETA's state and the Fisher information of the source batches, if there are any."""
        base = super().init(source)
        state = EataState(base.model, base.optimizer)
        if source.batches is None:
            warnings.warn(
                "eata has no source images for its Fisher term and acts as eta. "
                "Pass some: steep.adapt(model, 'eata', source=batches)",
                SteepWarning,
                stacklevel=2,
            )
        else:
            state.importance = fisher(state.model, source.batches, self.fisher_images)
            state.origin = [p.detach().clone() for p in state.model.adapted().values()]
        return state

    def penalty(self, state: EtaState) -> Tensor | float:
        """α Σ F (θ − θ_source)²."""
        if not isinstance(state, EataState) or not state.importance:
            return 0.0
        triples = zip(state.importance, state.model.adapted().values(), state.origin, strict=True)
        return self.fisher_weight * torch.stack([(f * (p - o) ** 2).sum() for f, p, o in triples]).sum()


def fisher(model: Classifier, batches: Iterable[Any], images: int) -> list[Tensor]:
    """Mean over batches of the squared gradient of the loss on the model's own predictions. No label is read."""
    params = list(model.adapted().values())
    total = [torch.zeros_like(p) for p in params]
    seen = count = 0
    before = model.snapshot()
    if hasattr(batches, "ndim"):
        raise InputError("source: expected batches of images, got one tensor or array. Give a list of them: [x]")
    for batch in batches:
        x, _ = model.check_images(batch)
        logits = model(x[: images - seen])
        loss = cross_entropy(logits, logits.detach().argmax(dim=1))
        check_gradient(loss)
        for t, g in zip(total, torch.autograd.grad(loss, params, allow_unused=True), strict=True):
            t += 0 if g is None else g**2  # a layer that the forward does not use
        seen, count = seen + len(logits), count + 1
        if seen >= images:
            break
    if not count:
        raise InputError("source: expected batches of images (B, C, H, W), got none")
    model.restore(before)  # a model may count its calls
    return [t / count for t in total]
