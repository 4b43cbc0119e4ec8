"""CoTTA: an averaged teacher sees many views; weights return to the source now and then (Wang et al., CVPR 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.augment import view
from steep.core.batch import mean
from steep.core.constraints import Choice, Layers, Real, Switch, Whole, hyper
from steep.core.losses import soft_cross_entropy
from steep.core.method import Look, Method, Need, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, average, copied, descend, exchanged


@dataclass
class CottaState(DescentState):
    """The teacher, which is the model that answers; the student's weights and optimiser; the source's weights."""

    student: list[Tensor]
    origin: list[Tensor]
    generator: torch.Generator


@dataclass(frozen=True, kw_only=True)
class Cotta(Method[CottaState]):
    """A student learns what its own average over time answers, for many views of an image if the source is unsure."""

    name = "cotta"
    paper = "Wang et al., Continual test-time domain adaptation, 2022, arXiv:2203.13591"
    predicts = "before"
    needs = frozenset({Need.VIEWS, Need.TEACHER})
    look = Look("#B2182B", "triangle-up")
    equation = """
        q = softmax f_teacher(x), or of the mean of f_teacher over views where mean max p_source(x) < threshold
        L = mean −Σ_k q_k log p_student(x)_k,   teacher ← a teacher + (1 − a) student
        each weight of the student ← its source value, with a small probability;   answer: that of the teacher
    """

    lr: float = hyper(1e-3, Real(above=0))
    keep: float = hyper(0.999, Real(least=0, most=1))  # a: share of the teacher in its average
    restore: float = hyper(0.01, Real(least=0, most=1))  # probability that a weight returns to its source value
    threshold: float = hyper(0.92, Real(least=0, most=1))  # confidence of the source below which views are averaged
    copies: int = hyper(32, Whole(least=1))  # augmented copies of each image
    mirror: bool = hyper(True, Switch())  # whether a view may be mirrored; not for digits and letters
    params: Params = hyper("all", Layers())
    statistics: str = hyper("batch", Choice("batch", "source"))

    def init(self, source: SourceModel) -> CottaState:
        """Batch statistics, Adam on all parameters; teacher and student start as the source."""
        model = source.prepare(self.params, self.statistics)
        student, origin = (copied(model.adapted().values()) for _ in range(2))
        return CottaState(model, adam(model, self.lr), student, origin, source.generator())

    def step(self, state: CottaState, x: Tensor) -> Step:
        """The student learns the teacher's answer, the teacher follows, some of the student's weights are restored."""
        weights = list(state.model.adapted().values())
        answer = self.predict(state, x)
        with exchanged(weights, state.student):
            loss = mean(soft_cross_entropy(state.model(x), answer))
            descend(state.optimizer, loss)
        average(weights, state.student, self.keep)
        for weight, source in zip(state.student, state.origin, strict=True):
            drawn = torch.rand(weight.shape, generator=state.generator, device=weight.device, dtype=weight.dtype)
            weight.copy_(torch.where(drawn < self.restore, source, weight))
        return Step(answer, loss.detach())

    @torch.no_grad()
    def predict(self, state: CottaState, x: Tensor) -> Tensor:
        """Answer with the teacher: with the mean over many views where the source model is unsure of the batch."""
        with exchanged(list(state.model.adapted().values()), state.origin):
            sure = mean(state.model(x).softmax(dim=1).amax(dim=1))
        plain, total = state.model(x), 0.0
        for _ in range(self.copies):
            total = total + state.model(view(x, state.generator, blurred=True, mirror=self.mirror))
        return torch.where(sure < self.threshold, total / self.copies, plain)

    def passes(self, batch_size: int, images: int) -> float:
        """The answer, and the student forward and backward."""
        return super().passes(batch_size, images) + self.answer_passes()

    def answer_passes(self) -> float:
        """Source, teacher and each view forward."""
        return 2 + self.copies
