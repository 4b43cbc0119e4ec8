"""Whom to trust: what a look at a batch tells of the source model, of the method and of the batch.

The source model does not learn, so nothing that the method does can deceive it. It answers the batch by its own
statistics, by those of the batch and by those of the stream so far. Which of these answers are sure, and which agree,
tells whether anything has shifted, and whether the batch holds too few classes to learn from. What follows differs:

- A method that normalises by each batch (bn, tent, ...) can do so by the stream's statistics instead, or answer
  together with the source model.
- One that mixes the batch into the source model's statistics (alpha-bn) can use the stream's instead.
- In the place of any other, where nothing has shifted, the source model answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from steep.core.answers import agreement, confidence, uncertainty, variety, variety_of
from steep.core.batch import size
from steep.core.layers import batch_norms, mixed_statistics, mixings_of
from steep.core.statistics import fixed_statistics, parameters_at, remembered

PRIOR = 2  # looks that the source's statistics count for in those of the stream
NEWEST = 0.05  # least share of the newest look in them

# When the source model is trusted. Chosen on the four extra corruptions of CIFAR-10-C and CIFAR-100-C, one by one and
# mixed, with even, uneven and sorted classes: results/tried/guard-*-cpu.jsonl.
SURER_THAN_BATCH, AGREES_WITH_BATCH = 0.9, 0.75  # times the uncertainty at most, share of the images at least
# It need not be that sure, nor agree as much, where it sees as many classes: a model that is lost takes most images for
# a few of them. Found on pairs of Office-Caltech; it changes little on the extra corruptions: tried/guard-variety-*.
AS_SURE, LESS_VARIETY = 1.0, 0.05  # times the uncertainty, and nats less than by the statistics of the batch, at most
MOSTLY = 0.56  # of the agreement beyond chance, which is 1 / K
# The stream's statistics lag behind where classes are few: there the source model need not be surer, nor agree as much.
SURER_THAN_STREAM, AGREES_WITH_STREAM = 1.1, 0.5
UNEVEN = 0.25  # nats by which the stream's statistics must show less variety than the batch's, ...
SURER_OF_FEW = 0.13  # ... and be surer, or by a quarter of the batch's uncertainty; ...
SHOWN = 0.8  # ... where images are fewer than classes: than this share of the variety that so many can show
IN_THE_LAST = 2  # times as far from the source as in the median of the others: few classes, else a shift

FEWER = math.log(0.75)  # nats of variety less than the source model: too few classes are left
APART = 0.1  # images in doubt that may be answered otherwise, besides twice those that the source model is unsure of
# A method that learns agrees with the source model about as often as that model does with itself by the batch's
# statistics; one that gets lost agrees less: results/tried/guard-agreement-cpu.jsonl.
LESS, LOST = 0.03, 0.06  # less often than that: the method has no say; it goes back to the start

# Who may answer. Where a method has no say, its parameters are the source model's in all of these.
SOURCE = "source"  # the source model, by its own statistics
BOTH = "both"  # it and the method together, where little has shifted
STREAM = "stream"  # the method, by the statistics of the stream: the batch has too few classes
METHOD = "batch"  # the method as it is
START = "start"  # in its place, where it has no say
ANSWERED_BY = {  # what a report says of them
    SOURCE: "the source model",
    BOTH: "the source model and the method together",
    STREAM: "the model by statistics of the stream",
    METHOD: None,
    START: "the model without what it has learned",
}

NOTHING = [-1.0] * 6  # no look has been taken yet


def has_looked(state: Any) -> bool:
    """Whether a look has been taken since the start."""
    return bool(state.watch_recent != NOTHING)


def normalises_by_batch(state: Any) -> bool:
    """Whether the model normalises by the statistics of each batch, however few classes that shows."""
    return any(hook.many_classes or not hook.always for hook in mixings_of(state.model, running=True))


def uses_the_batch(state: Any) -> bool:
    """Whether the model normalises by the statistics of each batch, or mixes them with its own."""
    return bool(mixings_of(state.model, running=True))


def has_many_classes(state: Any) -> bool:
    """Whether no batch is expected to show all classes: then the method mixes statistics itself."""
    return any(hook.many_classes for hook in mixings_of(state.model, running=True))


def who_answers(state: Any) -> str:
    """Say whose answers are given: those that the last look trusts, but none of a method that has no say."""
    if not has_no_say(state):
        return str(state.watch_trusted)
    return {BOTH: SOURCE, METHOD: START}.get(state.watch_trusted, str(state.watch_trusted))


def has_no_say(state: Any) -> bool:
    """Whether the method rests or is getting lost. How sure it is of itself is not asked: one that is lost is sure."""
    return bool(state.watch_rest > 0 or state.watch_behind > LESS)


def mixed(state: Any, by_source: Tensor, by_method: Tensor) -> Tensor:
    """Mix the answers of the source model and of the method: each counts for more, the less sure the other is."""
    source, batch = state.watch_recent[:2]
    share = (batch + 1e-6) / (source + batch + 2e-6)  # never 0 or 1: a class that is ruled out stays so
    logits: Tensor = share * by_source + (1 - share) * by_method
    return logits


@contextmanager
def source_parameters(state: Any) -> Iterator[None]:
    """Inside, the model is the source model, but for its statistics."""
    with parameters_at(state.model, state.watch_source_parameters):
        yield


@torch.no_grad()
def source_answer(state: Any, x: Tensor, by: str) -> Tensor:
    """Let the source model answer, by statistics of the "batch", of the "stream" or its own ("source")."""
    with source_parameters(state), state.model.uncompiled():
        if by == "batch":
            looks = state.watch_looks.add_(1)
            with (
                _by_the_batch_alone(state),
                remembered(state.model, state.watch_mean, state.watch_var, (1 / looks).clamp_min(NEWEST)),
            ):
                logits: Tensor = state.model(x)
            return logits
        statistics = (
            (state.watch_mean, state.watch_var) if by == "stream" else (state.watch_source_mean, state.watch_source_var)
        )
        with fixed_statistics(state.model, *statistics):
            logits = state.model(x)
    return logits


def _by_the_batch_alone(state: Any) -> AbstractContextManager[Any]:
    if normalises_by_batch(state):
        return nullcontext()
    if uses_the_batch(state):
        return fixed_statistics(state.model, prior=0)
    return mixed_statistics(state.model, share=1.0)


@torch.no_grad()
def look(state: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Decide anew whom to trust; give the source model's answers, by statistics as the method's and by its own.

    Without BatchNorm the method is trusted; so is one that mixes statistics, unless the batch is of few classes.

    Normalised by itself, a batch of few classes seems to hold all of them, and the answers are unsure. By the stream's
    statistics it shows its few classes, and the answers are surer. By its own statistics the source model is trusted
    where it is sure and mostly agrees: a model that is lost may be sure, but it is not of the same opinion. It need not
    be surer where it sees as many classes.
    """
    if not batch_norms(state.model, running=True):
        by_source = source_answer(state, x, "source")
        return by_source, by_source
    stream_statistics = (*state.watch_mean, *state.watch_var, state.watch_looks)
    before = [tensor.clone() for tensor in stream_statistics]
    by_batch = source_answer(state, x, "batch")  # first: this adds the batch to the statistics of the stream
    by_stream, by_source = source_answer(state, x, "stream"), source_answer(state, x, "source")
    by_each_batch, mixes = normalises_by_batch(state), uses_the_batch(state)
    reference = by_batch if by_each_batch else by_source
    numbers = [uncertainty(by_source), uncertainty(by_batch), uncertainty(by_stream)]
    numbers += [agreement(by_source, by_batch), agreement(by_source, by_stream), variety(by_batch) - variety(by_source)]
    *now, all_classes, few_classes = torch.stack([*numbers, variety(by_batch), variety(by_stream)]).tolist()
    if not all(map(math.isfinite, (*now, all_classes, few_classes))):  # it must not stay in what comes after
        for tensor, old in zip(stream_statistics, before, strict=True):
            tensor.copy_(old)
        return reference, by_source
    surer = now[1] - now[2] > min(SURER_OF_FEW, now[1] / 4)
    shown, fewer = variety_of(size(x), by_batch.shape[1]), all_classes - few_classes > UNEVEN
    possible = size(x) >= by_batch.shape[1] or few_classes < SHOWN * shown
    at_first = not has_looked(state)  # the statistics of the stream know nothing of it yet
    state.watch_uneven = surer and fewer and possible and not (at_first and _shifted_throughout(state))
    source, batch, stream, with_batch, with_stream, less = _averaged(state, now)
    if state.watch_uneven:
        sure = source < SURER_THAN_STREAM * stream and with_stream >= AGREES_WITH_STREAM
        otherwise = STREAM if mixes else METHOD
        state.watch_trusted = SOURCE if sure else otherwise
    elif mixes and not by_each_batch:
        state.watch_trusted = METHOD
    else:
        sure = source < SURER_THAN_BATCH * batch and with_batch >= AGREES_WITH_BATCH
        as_sure = source < AS_SURE * batch and _mostly(with_batch, by_batch) and less <= LESS_VARIETY
        little_shifted, instead = (sure or as_sure, BOTH) if by_each_batch else (sure, SOURCE)
        state.watch_trusted = instead if little_shifted else METHOD
    return reference, by_source


def _mostly(same: float, logits: Tensor) -> bool:
    """Whether so large a share of the images is agreed on, of as many classes as there are logits."""
    chance = 1 / logits.shape[1]
    return same >= chance + MOSTLY * (1 - chance)


def _averaged(state: Any, now: list[float]) -> list[float]:
    """Average what a look shows with what the earlier ones did: each counts half as much as the next."""
    earlier = state.watch_recent if has_looked(state) else now
    state.watch_recent = [(before + new) / 2 for before, new in zip(earlier, now, strict=True)]
    return list(state.watch_recent)


def _shifted_throughout(state: Any) -> bool:
    """Whether the first batch lies about as far from the source in the middle of the model as in its last layer.

    Classes are what the last layers tell apart: a batch of few of them is unusual there, a shifted one everywhere.
    """
    statistics = (state.watch_source_mean, state.watch_source_var, state.watch_mean, state.watch_var)
    apart = torch.stack([_divergence(*layer) for layer in zip(*statistics, strict=True)])
    apart = apart[apart > 0]  # a layer that is not used stays as it was
    return len(apart) > 1 and bool(apart[-1] < IN_THE_LAST * apart[:-1].median())


def _divergence(mean: Tensor, var: Tensor, new_mean: Tensor, new_var: Tensor) -> Tensor:
    """Kullback–Leibler divergence of Gaussians, new from old: the median of the channels."""
    ratio = new_var / var.clamp_min(1e-12)
    kl = ((new_mean - mean).square() / var.clamp_min(1e-12) + ratio - 1 - ratio.clamp_min(1e-12).log()) / 2
    return kl.float().median()


@torch.no_grad()
def note_agreement(state: Any, answer: Tensor, unlearned: Tensor, by_source: Tensor) -> None:
    """Average over the looks how much less the method agrees with the source model than it did before it learned.

    Where it mostly disagreed then, the source model is lost: a method that gets better then agrees less with it.
    """
    usual, now = torch.stack([agreement(unlearned, by_source), agreement(answer, by_source)]).tolist()
    behind = usual - now if _mostly(usual, by_source) else 0.0
    state.watch_behind = (state.watch_behind + behind) / 2


@torch.no_grad()
def why_lost(state: Any, answer: Tensor, reference: Tensor) -> str | None:
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
