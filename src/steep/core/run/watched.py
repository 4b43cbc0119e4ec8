"""`guard="recover"`: a method beside the source model, which answers some of the same images to be compared with.

The method is let alone while all goes well. At a look (the first batches, every eighth, every one while something is
wrong) the source model answers the batch in three ways: by its running statistics, by those of the batch and by those
of the stream so far. It does not learn, so nothing that the method does can deceive it. These answers tell

- whose answers to give: those of the method, or of it and the source model together where little has shifted;
- whether the batch holds too few classes to be normalised by itself: then nothing is learned from it;
- whether the method has lost its way: then its state goes back to the start, and rests for a while.

Batches that are too small for the method are answered at once, and learned from when enough images have come.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, make_dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from steep.core.answers import agreement, confidence, for_uneven_classes, uncertainty, variety, variety_of
from steep.core.batch import dealt_out, first, mean, size
from steep.core.layers import batch_norms, mixed_statistics, mixing_of, mixings_of
from steep.core.method import Method, Step
from steep.core.run.snapshot import DeviceSnapshot, HostSnapshot
from steep.core.statistics import fixed_statistics, parameters_at, remembered, source_statistics

FULL = 50  # images that a look needs, ...
GLANCE = 16  # ... and those that will do for the first
FIRST, EVERY = 4, 8  # batches that are all looked at; full ones from one look to the next
PRIOR = 2  # looks that the source's statistics count for in those of the stream
NEWEST = 0.05  # least share of the newest look in them

# When the source model is trusted. Chosen on the four extra corruptions of CIFAR-10-C and CIFAR-100-C, one by one and
# mixed, with even, uneven and sorted classes: results/tried/guard-*-cpu.jsonl.
SURER_THAN_BATCH, AGREES_WITH_BATCH = 0.9, 0.75  # times the uncertainty at most, share of the images at least
# The stream's statistics lag behind where classes are few: there the source model need not be surer, nor agree as much.
SURER_THAN_STREAM, AGREES_WITH_STREAM = 1.1, 0.5
UNEVEN = 0.25  # nats by which the stream's statistics must show less variety than the batch's, ...
SURER_OF_FEW = 0.13  # ... and be surer, or by a quarter of the batch's uncertainty; ...
SHOWN = 0.8  # ... where images are fewer than classes: than this share of the variety that so many can show
IN_THE_LAST = 2  # times as far from the source as in the median of the others: few classes, else a shift
SMALL = 16  # images of a batch that weigh as much as the stream's statistics, where both are mixed

FEWER = math.log(0.75)  # nats of variety less than the source model: too few classes are left
APART = 0.1  # images in doubt that may be answered otherwise, besides twice those that the source model is unsure of
# A method that learns agrees with the source model as often as that model does with itself by the batch's statistics,
# to 0.02 in batches of 200, however much has shifted; one that gets lost agrees less:
# results/tried/guard-agreement-cpu.jsonl.
LESS, LOST = 0.03, 0.06  # less often than that: the method has no say; it goes back to the start
SOON = 8  # looks: a method that gets lost within so many does so again, and rests longer each time
MOST_RESTS = 10  # doublings

NOTHING = [-1.0] * 5  # no look has been taken yet
WAITING = "waiting for more images"
FEW_CLASSES = "too few classes in the batch to learn from"
RESTING = "resting: adapting had led the model astray"
ANSWERED_BY = {
    "source": "the source model",
    "both": "the source model and the method together",
    "stream": "the model by statistics of the stream",
    "batch": None,
}

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
    watch_trusted: str  # "batch", which stands for the method, "stream", "source", or "both" source and method
    watch_recent: list[float]  # mean of the last looks: uncertainty by source, batch and stream, agreement with both
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
    looks = torch.full((), float(PRIOR), device=model.anchor().device)
    source, stream = source_statistics(model), source_statistics(model)
    # a batch that is large enough is looked at before it is answered
    trusted = "source" if _by_batch(state) else "batch"
    extra = Watch(parameters, *source, *stream, looks, trusted, NOTHING, 0.0, False, [], 0, 0, 0)
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

    def step(self, state: Any, x: Tensor) -> Step:
        """Do a step of the method, if the images are enough and the source model does not speak against it."""
        if self.repeats(state, x):
            return self.method.step(state, x)
        before = "batch" if state.watch_recent == NOTHING else _who(state)
        step = self._step(state, x) if size(x) >= FULL or not self.gathers else self._small_step(state, x)
        now = _who(state)
        if now != before and state.watch_recent != NOTHING:
            self._report(f"from here on it is answered by {ANSWERED_BY[now] or 'the adapted model'}")
        return step._replace(answered_by=ANSWERED_BY[now])

    def _step(self, state: Any, x: Tensor) -> Step:
        reference, by_source = _look(state, x)
        done = self._learn(state, x)
        step = self._judged(state, done, x, reference, by_source)
        if step is not done or step.note in (FEW_CLASSES, RESTING):
            return step  # answered by whom the look trusts already
        if _who(state) == "both":
            return step._replace(logits=_together(state, by_source, step.logits))
        return self._trusted(state, step, x)

    def _small_step(self, state: Any, x: Tensor) -> Step:
        """Answer at once; learn at once too if the method is made for that, else when there are enough images."""
        at_once = size(x) >= self.method.enough
        step = self._learn(state, x) if at_once else Step(self.predict(state, x), used=0, moved=False, note=WAITING)
        if not at_once:
            self._report(f"batches of fewer than {self.method.enough} images are gathered before it learns from them")
        waiting = _gather(state, x, step.logits)
        if waiting < (GLANCE if state.watch_recent == NOTHING else FULL):
            return self._trusted(state, step, x) if at_once else step
        with dealt_out(torch.cat(state.watch_waiting)) as part:
            reference, by_source = _look(state, part)
            if waiting >= FULL:
                state.watch_waiting = []
                if not at_once:
                    step = self._learn(state, part)
                    step = step._replace(used=size(part) if step.used is None else step.used)
                step = self._judged(state, step, part, reference, by_source)
        again = not at_once or step.leap
        return step._replace(logits=self.predict(state, x)) if again else self._trusted(state, step, x)

    def _trusted(self, state: Any, step: Step, x: Tensor) -> Step:
        """Give the step the answer of whom the last look trusts."""
        return (
            step
            if state.watch_trusted == "batch" and not _has_no_say(state)
            else step._replace(logits=self.predict(state, x))
        )

    def _report(self, what: str, why: str = "") -> None:
        """Write a line to the log: a warning the first time, which is seen where nobody has set up a log."""
        if self.gathers:  # an episode is no stream: there is nothing to tell of
            _log.log(
                logging.INFO if what in self.reported else logging.WARNING, "%s: %s%s", self.method.name, what, why
            )
            self.reported.add(what)

    def _learn(self, state: Any, x: Tensor) -> Step:
        if not state.watch_uneven and state.watch_rest <= 0:
            return self.method.step(state, x)
        state.watch_rest = max(0, state.watch_rest - size(x))
        note = FEW_CLASSES if state.watch_uneven else RESTING
        return Step(self.predict(state, x), used=0, moved=False, note=note)

    def _judged(self, state: Any, step: Step, x: Tensor, reference: Tensor, by_source: Tensor) -> Step:
        """Compare the method after its step with the source model; bring it back if it is lost."""
        if step.note in (FEW_CLASSES, RESTING):
            return step
        reason = None
        if step.moved:
            answer = self._peek(state, x)
            _note_agreement(state, answer, reference, by_source)
            reason = _astray(state, answer, reference)
        if reason is None:
            state.watch_healthy += 1
            return step
        self._recover(state)
        self._report("recovered the source model", f": {reason}")
        return step._replace(logits=self.predict(state, x), leap=True, note=f"recovered the source model: {reason}")

    @torch.no_grad()
    def _peek(self, state: Any, x: Tensor) -> Tensor:
        """Let the method answer, and leave no trace: it may draw random numbers for that."""
        device, host = DeviceSnapshot(state), HostSnapshot(state)
        try:
            return self.method.predict(state, x)
        finally:
            device.revert()
            host.revert(state)

    def _recover(self, state: Any) -> None:
        """Go back to the start, and rest: the longer, the sooner it was."""
        state.watch_rests = min(state.watch_rests + 1, MOST_RESTS) if state.watch_healthy <= SOON else 1
        state.watch_rest, state.watch_healthy = FULL * 2**state.watch_rests, 0
        names = {field.name for field in fields(Watch)}
        kept = {name: value for name, value in state.snapshot().items() if name in names}
        state.restore({**self.initial, **kept})
        state.watch_behind = 0.0  # that was another model

    @torch.no_grad()
    def predict(self, state: Any, x: Tensor) -> Tensor:
        """Answer by whom the last look trusts; a small batch needs the stream's statistics beside its own."""
        if (who := _who(state)) == "both":
            return _together(state, _answer(state, x, "source"), self._predict(state, x))
        logits = _answer(state, x, "source") if who == "source" else self._predict(state, x)
        return for_uneven_classes(logits) if state.watch_uneven else logits

    def _predict(self, state: Any, x: Tensor) -> Tensor:
        resting = _has_no_say(state)
        prior = None if state.watch_trusted == "stream" else SMALL
        steady = fixed_statistics(state.model, state.watch_mean, state.watch_var, prior=prior)
        enough = size(x) >= FULL or _has_many_classes(state)  # then the method mixes statistics itself
        plain = not _by_batch(state) or (state.watch_trusted != "stream" and enough)
        with nullcontext() if plain else steady, _source_parameters(state) if resting else nullcontext():
            logits: Tensor = state.model(x) if resting else self.method.predict(state, x)
        return logits

    def repeats(self, state: Any, x: Tensor) -> bool:
        """Whether the method goes on by itself, and does what it did the last time."""
        due = state.watch_healthy < FIRST or state.model.since_reset % EVERY == 0
        wrong = state.watch_trusted != "batch" or state.watch_uneven or _has_no_say(state)
        return (size(x) >= FULL or not self.gathers) and not due and not wrong and self.method.repeats(state, x)


def _by_batch(state: Any) -> bool:
    """Whether the model normalises by the statistics of each batch, however few classes that shows."""
    return any(hook.many_classes or not hook.always for hook in mixings_of(state.model, running=True))


def _has_many_classes(state: Any) -> bool:
    return any(hook.many_classes for hook in mixings_of(state.model, running=True))


def _who(state: Any) -> str:
    """Say whose answers are given: those that the last look trusts, but none of a method that has no say."""
    if state.watch_trusted == "both":
        return "source" if _has_no_say(state) else "both"
    return str(state.watch_trusted)


def _has_no_say(state: Any) -> bool:
    """Whether the method rests or is getting lost. How sure it is of itself is not asked: one that is lost is sure."""
    return bool(state.watch_rest > 0 or state.watch_behind > LESS)


def _together(state: Any, by_source: Tensor, by_method: Tensor) -> Tensor:
    """Mix the answers of the source model and of the method: each counts for more, the less sure the other is."""
    source, batch = state.watch_recent[:2]
    share = (batch + 1e-6) / (source + batch + 2e-6)  # never 0 or 1: a class that is ruled out stays so
    mixed: Tensor = share * by_source + (1 - share) * by_method
    return mixed


def _gather(state: Any, x: Tensor, answer: Tensor) -> int:
    """Let a small batch wait for the next ones, unless it has no answer: it would spoil the others. Count them."""
    if bool(mean(answer.amax(dim=1)).isfinite()):
        # a stream may change its size
        alike = [batch for batch in state.watch_waiting if batch.shape[1:] == x.shape[1:]]
        state.watch_waiting = [*alike, first(x, size(x)).clone()]
    return sum(map(len, state.watch_waiting))


@contextmanager
def _source_parameters(state: Any) -> Iterator[None]:
    with parameters_at(state.model, state.watch_source_parameters):
        yield


@torch.no_grad()
def _answer(state: Any, x: Tensor, by: str) -> Tensor:
    """Let the source model answer, by statistics of the "batch", of the "stream" or its own ("source")."""
    with _source_parameters(state), state.model.uncompiled():
        if by == "batch":
            looks = state.watch_looks.add_(1)
            with remembered(state.model, state.watch_mean, state.watch_var, (1 / looks).clamp_min(NEWEST)):
                logits: Tensor = state.model(x)
            return logits
        statistics = (
            (state.watch_mean, state.watch_var) if by == "stream" else (state.watch_source_mean, state.watch_source_var)
        )
        with fixed_statistics(state.model, *statistics):
            logits = state.model(x)
    return logits


@torch.no_grad()
def _look(state: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Decide anew whom to trust; give the source model's answers, by statistics as the method's and by its own.

    Normalised by itself, a batch of few classes seems to hold all of them, and the answers are unsure. By the stream's
    statistics it shows its few classes, and the answers are surer. By its own statistics the source model is trusted
    where it is sure and mostly agrees: a model that is lost may be sure, but it is not of the same opinion.
    """
    if not _by_batch(state):
        return _look_for_a_shift(state, x)
    by_batch = _answer(state, x, "batch")
    by_stream, by_source = _answer(state, x, "stream"), _answer(state, x, "source")
    numbers = [uncertainty(by_source), uncertainty(by_batch), uncertainty(by_stream)]
    numbers += [agreement(by_source, by_batch), agreement(by_source, by_stream), variety(by_batch), variety(by_stream)]
    *now, all_classes, few_classes = torch.stack(numbers).tolist()
    surer = now[1] - now[2] > min(SURER_OF_FEW, now[1] / 4)
    shown, fewer = variety_of(size(x), by_batch.shape[1]), all_classes - few_classes > UNEVEN
    possible = size(x) >= by_batch.shape[1] or few_classes < SHOWN * shown
    at_first = state.watch_recent == NOTHING  # the statistics of the stream know nothing of it yet
    state.watch_uneven = surer and fewer and possible and not (at_first and _shifted_throughout(state))
    earlier = now if state.watch_recent == NOTHING else state.watch_recent
    state.watch_recent = [(before + new) / 2 for before, new in zip(earlier, now, strict=True)]
    source, batch, stream, with_batch, with_stream = state.watch_recent
    if state.watch_uneven:
        sure = source < SURER_THAN_STREAM * stream and with_stream >= AGREES_WITH_STREAM
    else:
        sure = source < SURER_THAN_BATCH * batch and with_batch >= AGREES_WITH_BATCH
    alone, beside = ("source", "stream") if state.watch_uneven else ("both", "batch")
    state.watch_trusted = alone if sure else beside
    return by_batch, by_source


def _shifted_throughout(state: Any) -> bool:
    """Whether the first batch lies about as far from the source in the middle of the model as in its last layer.

    Classes are what the last layers tell apart: a batch of few of them is unusual there, a shifted one everywhere.
    """
    statistics = (state.watch_source_mean, state.watch_source_var, state.watch_mean, state.watch_var)
    apart = torch.stack([_divergence(*layer) for layer in zip(*statistics, strict=True)])
    return bool(apart[-1] < IN_THE_LAST * apart[:-1].median())  # never, where there is one layer: NaN


def _divergence(mean: Tensor, var: Tensor, new_mean: Tensor, new_var: Tensor) -> Tensor:
    """Kullback–Leibler divergence of Gaussians, new from old: the median of the channels."""
    ratio = new_var / var.clamp_min(1e-12)
    kl = ((new_mean - mean).square() / var.clamp_min(1e-12) + ratio - 1 - ratio.clamp_min(1e-12).log()) / 2
    return kl.float().median()


def _look_for_a_shift(state: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Decide whether to trust a method that does not normalise by the batch. Nothing has shifted where the source model
    would be less sure if it did. Without BatchNorm, or with layers that mix statistics, the method is trusted.
    """
    by_source = _answer(state, x, "source")
    layers = batch_norms(state.model, running=True)
    if not layers or any(map(mixing_of, layers)):
        return by_source, by_source
    with _source_parameters(state), state.model.uncompiled(), mixed_statistics(state.model, share=1.0):
        by_batch = state.model(x)
    numbers = torch.stack([uncertainty(by_source), uncertainty(by_batch), agreement(by_source, by_batch)])
    source, batch, same = numbers.tolist()
    now = [source, batch, batch, same, same]
    earlier = now if state.watch_recent == NOTHING else state.watch_recent
    state.watch_recent = [(before + new) / 2 for before, new in zip(earlier, now, strict=True)]
    source, batch, _, same, _ = state.watch_recent
    state.watch_trusted = "source" if source < SURER_THAN_BATCH * batch and same >= AGREES_WITH_BATCH else "batch"
    return by_source, by_source


@torch.no_grad()
def _note_agreement(state: Any, answer: Tensor, reference: Tensor, by_source: Tensor) -> None:
    """Average over the looks how much less the method agrees with the source model than that model with itself."""
    if reference is not by_source:
        behind = float(agreement(reference, by_source) - agreement(answer, by_source))
        state.watch_behind = (state.watch_behind + behind) / 2


@torch.no_grad()
def _astray(state: Any, answer: Tensor, reference: Tensor) -> str | None:
    """Say why the answers are worse than those of the source model to the same images, if they are."""
    numbers = [variety(answer), variety(reference), agreement(answer, reference), confidence(reference)]
    classes, usual, same, sure = torch.stack(numbers).tolist()
    if not math.isfinite(classes):
        return None  # the guard undoes the step
    if classes < usual + FEWER:
        return f"the answers use {math.exp(classes):.1f} classes, the source model's {math.exp(usual):.1f}"
    if 1 - same > 2 * (1 - sure) + APART and classes < usual + APART:
        return f"{1 - same:.0%} of the answers are not those of the source model, which is sure of {sure:.0%}"
    if state.watch_behind > LOST:
        return "the answers agree less often with the source model's than its own do by the statistics of the batch"
    return None
