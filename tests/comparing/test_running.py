"""The gain of a running model: what `steep.compare` says of the same answers, of late."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import steep
from nets import images, net
from steep.comparing import RunningGain, estimated_gain, running
from steep.comparing.estimate import Signs
from steep.core.views import mirror
from steep.errors import UnknownNameError

BATCHES = [images(20, seed) for seed in range(5)]


def ran(gain: RunningGain, batches: list[Tensor], **options) -> steep.Adapter:
    source = net().eval()
    adapter = steep.adapt(net(), "tent", lr=0.1, callbacks=[gain.take], **options)
    for x in batches:
        gain.ask(source, x)
        adapter(x)
    return adapter


@pytest.mark.parametrize("view", ["mirror", "shift"])
def test_it_is_what_compare_says_where_nothing_is_forgotten(monkeypatch, view) -> None:
    monkeypatch.setattr(running, "HALF_LIFE", math.inf)
    gain, source, tent = RunningGain(), net().eval(), steep.METHODS["tent"](lr=0.1)
    adapter = steep.adapt(net(), tent, callbacks=[gain.take])
    for x in BATCHES:
        gain.ask(source, x, view)
        adapter(x)
    row = steep.compare(net(), BATCHES, tent, view=view).table[1]
    assert gain.read() == pytest.approx((row.gain, row.low, row.high))
    assert gain.numbers()["verdict"] == row.verdict
    assert row.changed > 0


def test_what_is_long_ago_counts_less(monkeypatch) -> None:
    monkeypatch.setattr(running, "HALF_LIFE", 20)
    monkeypatch.setattr(running, "LEAST", 20)
    gain, draw = RunningGain(), torch.Generator().manual_seed(0)
    answers = [[torch.randn(20, 5, generator=draw) for _ in range(4)] for _ in range(3)]
    for each in answers:
        take_answers(gain, *each)
    signs = Signs(), Signs()
    for age, each in ((4, 0), (2, 1), (1, 2)):  # as if the new ones had come so many times
        for _ in range(4 // age):
            signs[0].add(answers[each][0], answers[each][1])
            signs[1].add(answers[each][2], answers[each][3])
    differ = [float((one.argmax(1) != other.argmax(1)).double().mean()) for one, _, other, _ in answers]
    changed = (differ[0] + 2 * differ[1] + 4 * differ[2]) / 7
    assert gain.read() == pytest.approx(estimated_gain(signs[0].read(), signs[1].read(), changed))


def take_answers(gain: RunningGain, first: Tensor, first_view: Tensor, adapted: Tensor, adapted_view: Tensor) -> bool:
    """Let made-up models answer a batch."""
    x, of = torch.zeros(len(first), 1, 2, 2), iter([first, first_view])
    gain.ask(lambda _: next(of), x)
    return gain.take(SimpleNamespace(peek=lambda _, view: adapted_view), adapted)


def sure(classes: Tensor) -> Tensor:
    return 6 * torch.nn.functional.one_hot(classes, 10).float()


def test_a_model_that_is_stuck_is_harmed_and_one_that_is_freed_is_helped() -> None:
    good, stuck = sure(torch.arange(100) % 10), sure(torch.zeros(100, dtype=torch.long))
    for (source, adapted), verdict in {(0, 1): "harming", (1, 0): "helping", (0, 0): "cannot tell"}.items():
        gain, of = RunningGain(), (good, stuck)
        assert take_answers(gain, of[source], of[source], of[adapted], of[adapted])
        assert gain.numbers()["verdict"] == verdict
        assert gain.read().sentence.startswith(f"adapting is {verdict}" if source != adapted else "cannot tell")


def test_few_images_say_nothing() -> None:
    gain = RunningGain()
    assert gain.read() is gain.numbers() is None
    ran(gain, BATCHES[:3])
    assert gain.read() is None  # 60 images
    ran(gain, BATCHES[:1])
    assert gain.read() is not None


def test_only_batches_that_are_asked_about_cost_anything(monkeypatch) -> None:
    gain, peeked = RunningGain(), []
    adapter = ran(gain, BATCHES[:4])
    before = gain.read()
    monkeypatch.setattr(steep.Adapter, "peek", lambda *args: peeked.append(args))
    adapter(BATCHES[4])
    assert (peeked, gain.read()) == ([], before)


def test_asking_leaves_the_adapter_as_it_would_be() -> None:
    asked, alone = ran(RunningGain(), BATCHES), steep.adapt(net(), "tent", lr=0.1)
    for x in BATCHES:
        last = alone(x)
    assert torch.equal(asked.raw.logits, last)


def test_damaged_images_and_failed_batches_are_left_out() -> None:
    damaged, gain, other = images(20, 1), RunningGain(), RunningGain()
    damaged[3] = math.nan
    ran(gain, [*BATCHES, damaged, torch.full_like(damaged, math.nan)], bad_images="nan")
    assert all(map(math.isfinite, gain.read()))
    source, adapter = net().eval(), steep.adapt(net(), "tent", callbacks=[other.take])
    other.ask(source, BATCHES[0])  # and then the batch does not come
    adapter(BATCHES[0][:7])
    assert other._kept[0].images == 0


def test_a_view_that_is_none_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="mirror"):
        RunningGain().ask(net(), BATCHES[0], mirror.__name__ + "ed")
