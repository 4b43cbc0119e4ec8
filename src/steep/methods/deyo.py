"""DeYO: entropy of images whose shape, not their texture, decides the class (Lee et al., ICLR 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from steep.core.augment import shuffled
from steep.core.batch import count, mean
from steep.core.constraints import Choice, Layers, Real, Whole, hyper
from steep.core.losses import LOSSES, entropy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step
from steep.core.optim import DescentState, descend, make_optimizer


@dataclass
class DeYOState(DescentState):
    """The model, its optimiser and the stream that the patches are shuffled by."""

    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class DeYO(Method[DeYOState]):
    """Weighted entropy of images that are reliable and lose their class when their patches are shuffled."""

    name = "deyo"
    paper = "Lee et al., Entropy is not enough for test-time adaptation, 2024, arXiv:2403.07366"
    predicts = "before"
    needs = frozenset({Need.VIEWS})
    look = Look("#2F4B7C", "triangle-right")
    equation = """
        L = mean over S of (exp(E0 − H(p(x))) + exp(d(x))) · H(p(x))
        d(x) = p(ŷ | x) − p(ŷ | x with its patches shuffled)
        S = { x : H(p(x)) < E  and  d(x) > drop },        E = margin · ln K,   E0 = weight_margin · ln K
    """

    lr: float = hyper(2.5e-4, Real(above=0))
    optimizer: str = hyper("sgd", Choice("sgd", "adam"))
    momentum: float = hyper(0.9, Real(least=0, most=1))  # of SGD
    margin: float = hyper(0.5, Real(least=0))  # images above E are unreliable
    weight_margin: float = hyper(0.4, Real(least=0))  # the entropy E0 from which on an image weighs little
    drop: float = hyper(0.2, Real(least=-1, most=1))  # least loss of probability; the paper: 0.3 with BatchNorm
    patches: int = hyper(4, Whole(least=1))  # along each side of an image
    params: Params = hyper("norm", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))
    loss: str = hyper("entropy", Choice(*LOSSES))

    @classmethod
    def tuned(cls) -> Self:
        """Adam, as others run it on CIFAR; the published rate of SGD is meant for ImageNet."""
        return cls(optimizer="adam", lr=1e-3)

    def init(self, source: SourceModel) -> DeYOState:
        """Batch statistics, SGD with momentum or Adam on the normalisation parameters."""
        model = source.prepare(self.params, self.statistics)
        optimizer = make_optimizer(self.optimizer, model, self.lr, self.momentum)
        return DeYOState(model, optimizer, source.generator())

    def step(self, state: DeYOState, x: Tensor) -> Step:
        """A forward of the images, one of them shuffled, and the gradient of those that both filters choose."""
        logits = state.model(x)
        h, p = entropy(logits.detach()), logits.detach().softmax(dim=1)
        with torch.no_grad():
            p_shuffled = state.model(shuffled(x, self.patches, state.generator)).softmax(dim=1)
        label = p.argmax(dim=1, keepdim=True)
        drop = (p.gather(1, label) - p_shuffled.gather(1, label)).squeeze(1)
        reliable = h < self.margin * math.log(p.shape[1])
        chosen = reliable & (drop > self.drop)
        weight = (self.weight_margin * math.log(p.shape[1]) - h).exp() + drop.exp()
        loss, used = mean(weight * LOSSES[self.loss](logits), chosen), count(chosen)
        descend(state.optimizer, loss, when=used > 0)
        return Step(logits, loss.detach(), used, reason_if_unused="no reliable image that its shape decides")

    def passes(self, batch_size: int, images: int) -> float:
        """One forward more, of the shuffled images."""
        return 1 + super().passes(batch_size, images)
