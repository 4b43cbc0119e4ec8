"""RoTTA: a student learns from a balanced memory, an averaged teacher answers (Yuan et al., CVPR 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.augment import view
from steep.core.batch import dealt_out, first, mean, part, size
from steep.core.constraints import Layers, Real, Switch, Whole, hyper
from steep.core.layers import keep_mixtures, mixed_statistics, running_statistics
from steep.core.losses import soft_cross_entropy
from steep.core.memory import ClassMemory
from steep.core.method import Look, Method, Need, Params, SourceModel, Step
from steep.core.optim import DescentState, adam, average, copied, descend, exchanged


@dataclass
class RottaState(DescentState):
    """The teacher, which is the model that answers; the student's weights, statistics and optimiser; the memory."""

    student: list[Tensor]
    statistics: list[Tensor]
    memory: ClassMemory
    generator: torch.Generator
    seen: int = 0  # images so far


@dataclass(frozen=True, kw_only=True)
class Rotta(Method[RottaState]):
    """For streams whose classes come in runs: learn from a memory balanced by class, with slow running statistics."""

    name = "rotta"
    paper = "Yuan et al., Robust test-time adaptation in dynamic scenarios, 2023, arXiv:2303.13899"
    predicts = "before"
    enough = 1
    needs = frozenset({Need.VIEWS, Need.TEACHER})
    look = Look("#2166AC", "diamond")
    equation = """
        L = mean over the memory of 1 / (1 + e^age) · −Σ_k p_teacher(x)_k log p_student(view of x)_k
        μ ← (1 − α) μ + α mean_B(h),   σ² alike;   teacher ← (1 − ν) teacher + ν student
        memory: each class its share; what makes room has the largest 1 / (1 + e^−age) + H(p) / ln K
    """

    lr: float = hyper(1e-3, Real(above=0))
    memory: int = hyper(64, Whole(least=1))  # images that are remembered
    every: int = hyper(64, Whole(least=1))  # images between two updates
    alpha: float = hyper(0.05, Real(least=0, most=1))  # share of the memory's in BatchNorm statistics at an update
    keep: float = hyper(0.999, Real(least=0, most=1))  # 1 − ν: share of the teacher in its average
    mirror: bool = hyper(True, Switch())  # whether a view may be mirrored; not for digits and letters
    params: Params = hyper("norm", Layers())

    def init(self, source: SourceModel) -> RottaState:
        """Running statistics, Adam on the normalisation parameters; teacher and student start as the source."""
        model = source.prepare(self.params, "source")
        student, running = copied(model.adapted().values()), copied(running_statistics(model))
        return RottaState(model, adam(model, self.lr), student, running, ClassMemory(self.memory), source.generator())

    def step(self, state: RottaState, x: Tensor) -> Step:
        """The teacher answers; images go into the memory one by one, and at each 64th the student learns from it."""
        logits = self.predict(state, x)
        images, answers = (first(each, size(x)) for each in (x, logits))  # all ranks remember the same
        start, used, loss = 0, 0, None
        while start < len(images):
            end = min(len(images), start + self.every - state.seen % self.every)
            state.memory.add(images[start:end], answers[start:end])
            state.seen, start = state.seen + end - start, end
            if state.seen % self.every == 0:
                used, loss = len(state.memory.items), self.learn(state)
        return Step(logits, loss, used, reason_if_unused="waits until there are more images in the memory")

    def learn(self, state: RottaState) -> Tensor:
        """One step of the student on views of the memory, weighted by age; then the teacher follows it."""
        weights, (memory, ages) = [*state.model.adapted().values()], state.memory.content()
        with dealt_out(memory) as x, state.model.uncompiled(), mixed_statistics(state.model, self.alpha) as seen:
            views = view(x, state.generator, blurred=True, mirror=self.mirror)
            targets = self.predict(state, x)
            keep_mixtures(seen)
            with exchanged([*weights, *running_statistics(state.model)], [*state.student, *state.statistics]):
                loss = mean(part((-ages).sigmoid()) * soft_cross_entropy(state.model(views), targets))
                descend(state.optimizer, loss)
                keep_mixtures(seen)
        average(weights, state.student, self.keep)
        return loss.detach()

    def passes(self, batch_size: int, images: int) -> float:
        """The teacher forward; at each update the memory, if it is full, forward twice and backward once."""
        return 1 + (1 + super().passes(batch_size, images)) * self.memory * (images // self.every) / images

    def repeats(self, state: RottaState, x: Tensor) -> bool:
        """The host decides what the memory keeps."""
        return False
