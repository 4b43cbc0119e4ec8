"""Methods with planted faults: the contract suite must see each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import contract
from contract import Case
from nets import net
from steep.core.langevin import ReplayBuffer
from steep.core.method import Need, Step
from steep.core.optim import DescentState
from steep.errors import CheckpointError
from steep.methods.eta import Eta
from steep.methods.tea import TEA
from steep.methods.tent import Tent


class LeakyBuffer(TEA):
    """Keeps its chains across reset(), as the published code does."""

    def init(self, source):
        state = super().init(source)
        kept = ReplayBuffer(self.buffer_size)
        kept.snapshot = dict
        kept.restore = lambda saved: None
        state.buffer = kept
        return state


class ForgetfulAverage(Eta):
    """Its moving average lives beside the state, so nobody saves it."""

    def step(self, state, x):
        state.mean_prediction = getattr(state, "hidden", None)
        done = super().step(state, x)
        state.hidden, state.mean_prediction = state.mean_prediction, None
        return done


class SelfishMethod(Tent):
    """Counts on the method itself and lets the count matter."""

    calls: ClassVar[int] = 0

    def step(self, state, x):
        type(self).calls += 1
        state.optimizer.param_groups[0]["lr"] = 1e-3 * type(self).calls
        return super().step(state, x)


class GlobalNoise(Tent):
    """Draws from the global random stream."""

    def step(self, state, x):
        return super().step(state, x + 0.01 * torch.randn_like(x))


class StalePrediction(TEA):
    """Says it answers after the update and answers with what it had before."""

    def step(self, state, x):
        done = super().step(state, x)
        state.model.stale = done.logits.detach()
        return done

    def predict(self, state, x):
        return state.model.stale


class UnreportedUpdate(Tent):
    """Reports logits of the model after its update as those from before it."""

    def step(self, state, x):
        done = super().step(state, x)
        return done._replace(logits=state.model(x))


class Idle(Tent):
    """Does nothing at all."""

    def step(self, state, x):
        return Step(state.model(x))


@dataclass
class MomentlessState(DescentState):
    """Saves its optimiser without the moments."""

    def snapshot(self):
        saved = super().snapshot()
        saved["optimizer"]["state"] = {}
        return saved


class ForgottenMoments(Tent):
    """Begins Adam anew when resumed."""

    def init(self, source):
        state = super().init(source)
        return MomentlessState(state.model, state.optimizer)


class Dearer(Tent):
    """Looks at every image twice, and says once."""

    def step(self, state, x):
        state.model(x)
        return super().step(state, x)


class Overdemanding(Tent):
    """Says that it needs BatchNorm, and takes any model."""

    needs: ClassVar = frozenset({Need.BATCH_NORM})


class Restless(Tent):
    """Says that it leaves the model alone."""

    moves: ClassVar = False


FAULTS = [
    (LeakyBuffer, {"sgld_steps": 2, "buffer_size": 64}, contract.reset_replays),
    (LeakyBuffer, {"sgld_steps": 2, "buffer_size": 64}, contract.resumes_mid_stream),
    (ForgetfulAverage, {"novelty": 0.9, "lr": 1e-2}, contract.resumes_mid_stream),
    (ForgetfulAverage, {"novelty": 0.9, "lr": 1e-2}, contract.reset_replays),
    (ForgottenMoments, {}, contract.resumes_mid_stream),
    (SelfishMethod, {}, contract.reset_replays),
    (GlobalNoise, {}, contract.randomness_is_its_own),
    (StalePrediction, {"sgld_steps": 2, "buffer_size": 64}, contract.predicts_when_it_says),
    (UnreportedUpdate, {}, contract.predicts_when_it_says),
    (Idle, {}, contract.moves_something_and_leaves_the_callers_model),
    (Restless, {}, contract.moves_something_and_leaves_the_callers_model),
    (Dearer, {}, contract.costs_what_it_says),
    (Overdemanding, {}, contract.needs_batch_norm_only_if_it_says_so),
]


@pytest.mark.parametrize(("mutant", "hyper", "rule"), FAULTS, ids=lambda v: getattr(v, "__name__", ""))
def test_fault_is_seen(mutant, hyper, rule):
    # a state that lacks something is refused when it is resumed: seen, too
    with pytest.raises((AssertionError, pytest.fail.Exception, CheckpointError)):
        rule(Case(mutant, net("batch"), hyper=hyper))
