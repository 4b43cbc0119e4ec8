"""Auto: the objective of infuse, set by what the model and the stream show. The default guard decides when it rests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steep.core.answers import sure_and_same
from steep.core.batch import size
from steep.core.classifier import SourceModel
from steep.core.constraints import Layers, Real, hyper
from steep.core.layers import Params
from steep.core.method import Look, Method, Moment, Need, Step, backward_passes
from steep.core.optim import DescentState, adam, average, copied, descend
from steep.core.views import mean_answer, with_mirror
from steep.errors import NothingToAdaptError
from steep.methods.infuse import objective

FULL = 200  # images that the rate was chosen for; fewer images a step take a shorter one
FIRST = 4  # steps that look at mirror images to find out whether these may be used
MOSTLY = 0.75  # share of sure answers that a mirror must not change


@dataclass
class AutoState(DescentState):
    """Model and optimiser, the source parameters, and what is known of mirror images."""

    origin: list[Tensor]
    looks: int  # at mirror images, still to come
    sure: float  # images of which the answers to both were sure
    same: float  # those of them that got the same class
    mirrored: bool  # whether a mirror image counts as the same image


@dataclass(frozen=True, kw_only=True)
class Auto(Method[AutoState]):
    """Choose by layers, batch, classes and first images; with the default guard, answer as the source where better."""

    name: ClassVar = "auto"
    paper: ClassVar = "steep's own; the objective is infuse's"
    predicts: ClassVar[Moment] = "before"
    needs: ClassVar = frozenset({Need.VIEWS})
    look: ClassVar = Look("#4B0082", "square")
    equation: ClassVar = (
        "L of infuse with d = 3 · min(1, B / 2K), rate lr · min(1, B / 200); one view where a mirror changes the class"
    )

    lr: float = hyper(1e-3, Real(above=0))
    consistency: float = hyper(0.5, Real(least=0))
    diversity: float = hyper(3.0, Real(least=0))
    pull: float = hyper(0.01, Real(least=0, most=1))
    params: Params = hyper("norm", Layers())

    def init(self, source: SourceModel) -> AutoState:
        """Adam on the normalisation parameters; a model without any is left as it is."""
        try:
            model = source.prepare(self.params, "batch")
        except NothingToAdaptError:
            return AutoState(source.prepare(None, "source"), None, [], 0, 0, 0, False)  # type: ignore[arg-type]
        return AutoState(model, adam(model, self.lr), copied(model.adapted().values()), FIRST, 0, 0, True)

    def step(self, state: AutoState, x: Tensor) -> Step:
        """Go down infuse's objective, by as much as so many images can tell, then a little back to the source."""
        if not state.origin:
            return Step(self.predict(state, x), used=0, moved=False, note="no layer to adapt: the source model answers")
        logits = state.model(with_mirror(x, state.mirrored))  # (B or 2B, K)
        answer = mean_answer(logits.detach().chunk(1 + state.mirrored))
        note = self._look(state, *logits.detach().chunk(2)) if state.looks else None
        views, rate, variety = 1 + state.mirrored, min(1.0, size(x) / FULL), min(1.0, size(x) / (2 * logits.shape[1]))
        loss = objective(logits[: views * len(x)], views, self.consistency, variety * self.diversity)
        state.optimizer.param_groups[0]["lr"] = rate * self.lr
        descend(state.optimizer, loss)
        average(list(state.model.adapted().values()), state.origin, keep=1 - rate * self.pull)
        return Step(answer, loss=loss.detach(), note=note)

    def _look(self, state: AutoState, image: Tensor, mirror: Tensor) -> str | None:
        """Find out how often a mirror leaves a sure answer as it is; say what follows. This waits for the device."""
        now = sure_and_same(image, mirror).tolist()
        state.sure, state.same = state.sure + now[0], state.same + now[1]
        state.mirrored = state.same >= MOSTLY * state.sure
        state.looks = state.looks - 1 if state.mirrored else 0
        why = f"a mirror leaves {state.same:.0f} of {state.sure:.0f} sure answers as they are"
        return None if state.looks else f"learns from images {'and mirrors' if state.mirrored else 'alone'}: {why}"

    @torch.no_grad()
    def predict(self, state: AutoState, x: Tensor) -> Tensor:
        """Answer by one view or two."""
        return mean_answer(state.model(with_mirror(x, state.mirrored)).chunk(1 + state.mirrored))

    def repeats(self, state: AutoState, x: Tensor) -> bool:
        """Once it knows of the mirror."""
        return not state.looks

    def passes(self, batch_size: int, images: int) -> float:
        """Both views forward and backward; half of it where a mirror may not be used."""
        return 2 * (1 + backward_passes(self.params))
