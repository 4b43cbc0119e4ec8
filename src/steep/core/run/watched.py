"""`guard="recover"`: a method beside the source model, which answers some of the same images to be compared with.

The method is let alone while all goes well. At a look (the first batches, every eighth, every one while something is
wrong) the source model answers the batch too. What `trust.py` reads from its answers decides three things:

- whose answers to give, of the four that it lists;
- whether the batch holds too few classes to be normalised by itself: then nothing is learned from it;
- whether the method has lost its way: then its state goes back to the start, and rests for a while.

Between two looks batches are answered by whom the last one trusts. Batches that are too small for a look wait until
there are enough images for one; so does learning from them, if they are too small for the method too. They are answered
at once all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from steep.core.answers import for_uneven_classes
from steep.core.batch import dealt_out, first, mean, size
from steep.core.method import Method, Step
from steep.core.optim import exchanged
from steep.core.run import trust
from steep.core.run.snapshot import without_a_trace
from steep.core.run.trust import ANSWERED_BY, BOTH, METHOD, SOURCE, STREAM
from steep.core.statistics import fixed_statistics, source_statistics

FULL = 50  # images that a look needs, ...
GLANCE = 16  # ... and those that will do for the first
FIRST, EVERY = 4, 8  # batches that are all looked at; full ones from one look to the next
SMALL = 16  # images of a batch that weigh as much as the stream's statistics, where both are mixed
SOON = 8  # looks: a method that gets lost within so many does so again, and rests longer each time
MOST_RESTS = 10  # doublings

WAITING = "waiting for more images"
FEW_CLASSES = "too few classes in the batch to learn from"
RESTING = "resting: adapting had led the model astray"
NOT_LEARNED = (FEW_CLASSES, RESTING)

_log = logging.getLogger("steep")


@dataclass
class Watch:
    """What a watched state has besides its method's fields, by names that no method has."""

    watch_source_parameters: list[Tensor]
    watch_source_mean: list[Tensor]
    watch_source_var: list[Tensor]
    watch_mean: list[Tensor]  # of the stream, as the layers normalised it
    watch_var: list[Tensor]
    watch_looks: Tensor  # that these are averaged over, the prior included
    watch_trusted: str  # SOURCE, BOTH, STREAM or METHOD
    # means of the last looks: uncertainty by source, batch and stream, agreement with both, variety less than by batch
    watch_recent: list[float]
    watch_behind: float  # by how much less often than that, of late, the method agreed with the source model
    watch_uneven: bool  # whether a batch holds too few classes to be normalised by itself
    watch_waiting: list[Tensor]  # small batches that are not yet enough to learn from
    watch_healthy: int  # looks since it was last lost
    watch_rest: int  # images still to be answered without learning
    watch_rests: int  # in a row


@cache
def watched_class(plain: Any) -> Any:
    """Make a state with the fields of `Watch` too: all of it is saved, restored, reset and undone alike."""
    extra = [(field.name, field.type) for field in fields(Watch)]
    namespace = {"__reduce__": lambda self: (_unpickled, (plain,), vars(self))}
    return make_dataclass(f"Watched{plain.__name__}", extra, bases=(plain,), namespace=namespace, kw_only=True)


def _unpickled(plain: Any) -> Any:
    cls = watched_class(plain)
    return cls.__new__(cls)


def watch(state: Any) -> Any:
    """Let a state remember what watching it needs."""
    model = state.model
    parameters = [p.detach().clone() for p in model.adapted().values()]
    looks = torch.full((), float(trust.PRIOR), device=model.anchor().device)
    source, stream = source_statistics(model), source_statistics(model)
    # a batch that is large enough is looked at before it is answered
    trusted = SOURCE if trust.normalises_by_batch(state) else METHOD
    extra = Watch(parameters, *source, *stream, looks, trusted, trust.NOTHING, 0.0, False, [], 0, 0, 0)
    plain: Any = type(state)
    state.__class__ = watched_class(plain)
    vars(state).update(vars(extra))
    return state


class Watched:
    """A method that is compared with the source model."""

    def __init__(self, method: Method[Any], *, episodic: bool) -> None:
        self.method = method
        self.gathers = not episodic  # else there is no batch before
        self.initial: Mapping[str, Any] = {}  # what a lost state goes back to
        self.reported: set[str] = set()  # what a warning has told of

    # A batch: let alone, looked at by itself, or gathered with others for a look

    def step(self, state: Any, x: Tensor) -> Step:
        """Do a step of the method, if the images are enough and the source model does not speak against it."""
        if self.repeats(state, x):
            return self.method.step(state, x)
        before = trust.who_answers(state) if trust.has_looked(state) else METHOD
        step = self._full_step(state, x) if self._is_full(x) else self._small_step(state, x)
        now = trust.who_answers(state)
        if now != before and trust.has_looked(state):
            self._report(f"from here on it is answered by {ANSWERED_BY[now] or 'the adapted model'}")
        return step._replace(answered_by=ANSWERED_BY[now])

    def repeats(self, state: Any, x: Tensor) -> bool:
        """Whether the method goes on by itself, and does what it did the last time."""
        due = state.watch_healthy < FIRST or state.model.since_reset % EVERY == 0
        wrong = state.watch_trusted != METHOD or state.watch_uneven or trust.has_no_say(state)
        return self._is_full(x) and not due and not wrong and self.method.repeats(state, x)

    def _is_full(self, x: Tensor) -> bool:
        return size(x) >= FULL or not self.gathers

    def _full_step(self, state: Any, x: Tensor) -> Step:
        """Look at the batch, learn from it, and answer."""
        reference, by_source = trust.look(state, x)
        learned = self._learn(state, x)
        step = self._compare(state, learned, x, reference, by_source)
        if step is not learned or step.note in NOT_LEARNED:
            return step  # answered by whom the look trusts already
        if trust.who_answers(state) == BOTH:  # the source model has answered already
            return step._replace(logits=trust.mixed(state, by_source, step.logits))
        return self._with_trusted_answer(state, step, x)

    def _small_step(self, state: Any, x: Tensor) -> Step:
        """Answer at once; learn at once too if the method is made for that, else when there are enough images."""
        at_once = size(x) >= self.method.enough
        step = self._learn(state, x) if at_once else Step(self.predict(state, x), used=0, moved=False, note=WAITING)
        if not at_once:
            self._report(f"batches of fewer than {self.method.enough} images are gathered before it learns from them")
        waiting = _gather(state, x, step.logits)
        if waiting < (FULL if trust.has_looked(state) else GLANCE):
            return self._with_trusted_answer(state, step, x) if at_once else step
        with dealt_out(torch.cat(state.watch_waiting)) as part:
            reference, by_source = trust.look(state, part)
            if waiting >= FULL:
                state.watch_waiting = []
                if not at_once:
                    step = self._learn(state, part)
                    step = step._replace(used=size(part) if step.used is None else step.used)
                step = self._compare(state, step, part, reference, by_source)
        again = not at_once or step.leap
        return step._replace(logits=self.predict(state, x)) if again else self._with_trusted_answer(state, step, x)

    # Learning, and what follows if the method has lost its way

    def _learn(self, state: Any, x: Tensor) -> Step:
        """Do a step of the method, unless the batch has too few classes for it or the method rests."""
        if not state.watch_uneven and state.watch_rest <= 0:
            return self.method.step(state, x)
        state.watch_rest = max(0, state.watch_rest - size(x))
        note = FEW_CLASSES if state.watch_uneven else RESTING
        return Step(self.predict(state, x), used=0, moved=False, note=note)

    def _compare(self, state: Any, step: Step, x: Tensor, reference: Tensor, by_source: Tensor) -> Step:
        """Compare the method after its step with the source model; bring it back if it is lost."""
        if step.note in NOT_LEARNED:
            return step
        reason = None
        if step.moved:
            with torch.no_grad(), without_a_trace(state):
                answer = self.method.predict(state, x)
            if reference is not by_source and self.gathers and size(x) >= FULL:
                trust.note_agreement(state, answer, self._unlearned(state, x, reference), by_source)
            reason = trust.why_lost(state, answer, reference)
        if reason is None:
            state.watch_healthy += 1
            return step
        self._recover(state)
        self._report("recovered the source model", f": {reason}")
        return step._replace(logits=self.predict(state, x), leap=True, note=f"recovered the source model: {reason}")

    @torch.no_grad()
    def _unlearned(self, state: Any, x: Tensor, reference: Tensor) -> Tensor:
        """Answer as the method would if it had learned nothing: it may take the mean of views, or correct answers."""
        if type(self.method).predict is Method.predict:
            return reference
        with without_a_trace(state), exchanged([*state.model.adapted().values()], state.watch_source_parameters):
            return self.method.predict(state, x)

    def _recover(self, state: Any) -> None:
        """Go back to the start, and rest: the longer, the sooner it was."""
        state.watch_rests = min(state.watch_rests + 1, MOST_RESTS) if state.watch_healthy <= SOON else 1
        state.watch_rest, state.watch_healthy = FULL * 2**state.watch_rests, 0
        names = {field.name for field in fields(Watch)}
        kept = {name: value for name, value in state.snapshot().items() if name in names}
        state.restore({**self.initial, **kept})
        state.watch_behind = 0.0  # that was another model

    def _report(self, what: str, why: str = "") -> None:
        """Write a line to the log: a warning the first time, which is seen where nobody has set up a log."""
        if self.gathers:  # an episode is no stream: there is nothing to tell of
            level = logging.INFO if what in self.reported else logging.WARNING
            _log.log(level, "%s: %s%s", self.method.name, what, why)
            self.reported.add(what)

    # Answering

    @torch.no_grad()
    def predict(self, state: Any, x: Tensor) -> Tensor:
        """Answer by whom the last look trusts."""
        who = trust.who_answers(state)
        if who == BOTH:
            return trust.mixed(state, trust.source_answer(state, x, "source"), self._predict_by_method(state, x))
        logits = trust.source_answer(state, x, "source") if who == SOURCE else self._predict_by_method(state, x)
        uneven = state.watch_uneven and state.watch_trusted != METHOD  # that answers as it is made to
        return for_uneven_classes(logits) if uneven else logits

    def _with_trusted_answer(self, state: Any, step: Step, x: Tensor) -> Step:
        """Give the step the answer of whom the last look trusts; where that is the method, it has it already."""
        return step if trust.who_answers(state) == METHOD else step._replace(logits=self.predict(state, x))

    def _predict_by_method(self, state: Any, x: Tensor) -> Tensor:
        """Answer by the method or, where it has no say, as it would without what it has learned."""
        statistics: AbstractContextManager[None] = nullcontext()
        if state.watch_trusted == STREAM:
            statistics = fixed_statistics(state.model, state.watch_mean, state.watch_var)
        elif trust.normalises_by_batch(state) and size(x) < FULL and not trust.has_many_classes(state):
            # a small batch needs the stream's statistics beside its own
            statistics = fixed_statistics(state.model, state.watch_mean, state.watch_var, prior=SMALL)
        if not trust.has_no_say(state):
            with statistics:
                return self.method.predict(state, x)
        if trust.normalises_by_batch(state):
            with statistics, exchanged([*state.model.adapted().values()], state.watch_source_parameters):
                return self.method.predict(state, x)
        with statistics, trust.source_parameters(state):
            logits: Tensor = state.model(x)  # memo would learn in its answer
            return logits


def _gather(state: Any, x: Tensor, answer: Tensor) -> int:
    """Let a small batch wait for the next ones, unless it has no answer: it would spoil the others. Count them."""
    if bool(mean(answer.amax(dim=1)).isfinite()):
        # a stream may change its size
        alike = [batch for batch in state.watch_waiting if batch.shape[1:] == x.shape[1:]]
        state.watch_waiting = [*alike, first(x, size(x)).clone()]
    return sum(map(len, state.watch_waiting))
