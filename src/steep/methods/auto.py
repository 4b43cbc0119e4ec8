"""Auto: infuse for any model and any images. The default guard decides when it rests."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.core.answers import sure_and_same
from steep.core.batch import size
from steep.core.constraints import Layers, Real, hyper
from steep.core.method import Look, Method, Need, Params, SourceModel, Step, backward_passes
from steep.core.optim import adam, average, copied, descend
from steep.core.views import mean_answer, with_mirror
from steep.errors import NothingToAdaptError
from steep.methods.infuse import InfuseState, objective

FIRST, EVERY = 4, 64  # batches that all look at mirror images to find out if these may be used; later ones that do
MOSTLY, FEW = 0.75, 20  # share of sure answers that a mirror must not change, and how many tell nothing yet


@dataclass
class AutoState(InfuseState):
    """That of infuse, and what is known of mirror images."""

    steps: int  # so far; recorded ones are not counted
    seen: list[float]  # images of which the answers to both were sure, and those of them that got the same class
    mirrored: bool  # whether a mirror image counts as the same image


@dataclass(frozen=True, kw_only=True)
class Auto(Method[AutoState]):
    """Infuse where the layers allow it, by mirror images where these leave sure answers as they are."""

    name = "auto"
    paper = "steep's own; the objective is infuse's"
    predicts = "before"
    needs = frozenset({Need.VIEWS})
    look = Look("#E0004D", "square")
    equation = "L of infuse, by one view or two"

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
            if self.params != "norm":
                raise  # what the caller asks for is not there
            return AutoState(source.prepare(None, "source"), None, [], 0, [0.0, 0.0], False)  # type: ignore[arg-type]
        return AutoState(model, adam(model, self.lr), copied(model.adapted().values()), 0, [0.0, 0.0], True)

    def step(self, state: AutoState, x: Tensor) -> Step:
        """Go down infuse's objective, then a little back to the source."""
        if not state.origin:
            return Step(self.predict(state, x), used=0, moved=False, note="no layer to adapt: the source model answers")
        looks, state.steps = not self.repeats(state, x), state.steps + 1
        logits = state.model(with_mirror(x, looks or state.mirrored))  # (B or 2B, K)
        note = self._look(state, *logits.detach().chunk(2)) if looks else None
        views = 1 + state.mirrored
        logits = logits[: views * len(x)]
        loss = objective(logits, size(x), views, self.consistency, self.diversity)
        descend(state.optimizer, loss)
        average(list(state.model.adapted().values()), state.origin, keep=1 - self.pull)
        return Step(mean_answer(logits.detach().chunk(views)), loss=loss.detach(), note=note)

    def _look(self, state: AutoState, image: Tensor, mirror: Tensor) -> str | None:
        """Find out how often a mirror leaves a sure answer as it is; say what follows. This waits for the device."""
        (sure, same), before = sure_and_same(image, mirror).tolist(), state.mirrored if state.steps > 1 else None
        state.seen = [state.seen[0] / 2 + sure, state.seen[1] / 2 + same]  # what is long ago counts less
        state.mirrored = state.seen[0] < FEW or state.seen[1] >= MOSTLY * state.seen[0]
        how = f"{'and mirrors' if state.mirrored else 'alone'}: a mirror leaves {same:.0f} of {sure:.0f} sure answers"
        return None if state.mirrored == before else f"learns from images {how} as they are"

    @torch.no_grad()
    def predict(self, state: AutoState, x: Tensor) -> Tensor:
        """Answer by one view or two."""
        return mean_answer(state.model(with_mirror(x, state.mirrored)).chunk(1 + state.mirrored))

    def repeats(self, state: AutoState, x: Tensor) -> bool:
        """From one look at mirror images to the next."""
        return state.steps >= FIRST and state.steps % EVERY != 0 and state.model.since_reset % EVERY != 0

    def passes(self, batch_size: int, images: int) -> float:
        """Both views forward and backward; half of it where a mirror may not be used."""
        return 2 * (1 + backward_passes(self.params))
