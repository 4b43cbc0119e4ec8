"""guard="recover": the source model beside the method, small batches, few classes, and a method that gets lost."""

from __future__ import annotations

import copy
import itertools
import pickle
import subprocess
import sys

import pytest
import torch
from test_guard import MOVING, QUICK, Prism, Wrecker, rainbow

import steep
from contract import identical
from steep.core.answers import for_uneven_classes
from steep.core.layers import mixing_of
from steep.core.run import trust, watched
from steep.core.run.snapshot import tensors
from steep.methods.alpha_bn import AlphaBN
from steep.methods.tent import Tent

NEVER_GATHERS = [name for name in MOVING if steep.METHODS[name].enough == 1]


class Smash(Tent):
    """Every step ruins the model at once, by a finite and ordinary amount: all images are of the last class."""

    def step(self, state, x):
        done = super().step(state, x)
        with torch.no_grad():
            state.model.net.norm.bias[4] = 10.0
        return done


def played(adapter: steep.Adapter, batches: int) -> tuple[list[float], list[int], list[int]]:
    """Accuracy of every batch; where it recovered; where it rested."""
    right, events, rests = [], [], []
    for s in range(batches):
        x, labels = rainbow(s)
        right.append(float((adapter(x).argmax(dim=1) == labels).float().mean()))
        if adapter.last.note:
            assert "recovered the source model: the answers use" in adapter.last.note
            events.append(s)
        if adapter.last.skipped == watched.RESTING:
            rests.append(s)
            assert adapter.raw.verdict is None  # no step, nothing to judge
    return right, events, rests


def one_class(label: int, seed: int) -> torch.Tensor:
    """Sixty images of one class."""
    parts = [x[labels == label] for x, labels in map(rainbow, range(1000 * seed, 1000 * seed + 5))]
    return torch.cat(parts)


def test_it_is_the_default():
    code = "import steep; print(steep.adapt.__kwdefaults__['guard'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "recover"


@pytest.mark.parametrize("options", [{}, {"predict": "after"}, {"steps": 2}])
def test_a_model_that_is_lost_at_once_never_answers(options):
    lost, _, _ = played(steep.adapt(Prism(), Smash(), **options), 10)
    assert sum(lost[1:]) / 9 < 0.3
    right, events, rests = played(steep.adapt(Prism(), Smash(), guard="recover", **options), 40)
    assert events[0] == 0
    assert min(right) > 0.9  # all of them are the source model's
    lengths = [after - before - 1 for before, after in itertools.pairwise(events)]
    assert lengths == sorted(lengths)  # it rests longer each time
    assert lengths[-1] >= 4 * max(1, lengths[0])
    assert {*range(40)} == {*events} | {*rests}


def test_an_episode_that_is_lost_is_answered_by_the_source_model():
    right, events, _ = played(steep.adapt(Prism(), Smash(), guard="recover", episodic=True, predict="after"), 5)
    assert events == [*range(5)]
    assert min(right) > 0.9


def test_a_slow_collapse_is_noticed():
    lost, kept = (played(steep.adapt(Prism(), Wrecker(), guard=g), 120) for g in ("skip", "recover"))
    assert sum(lost[0]) / 120 < 0.6
    assert sum(kept[0]) / 120 > 0.8
    assert kept[1]


def test_small_batches_are_answered_at_once_and_learned_from_together():
    adapter, plain = steep.adapt(Prism(), "tent", guard="recover", lr=0.01), steep.adapt(Prism(), "tent", lr=0.01)
    x, _ = rainbow(0)
    start = adapter.state_dict()["state"]["model"]
    for i, part in enumerate(x.split(12)):
        assert adapter(part).shape == (12, 5)
        waits = i < 4
        assert adapter.last.skipped == (watched.WAITING if waits else None)
        assert identical(adapter.state_dict()["state"]["model"], start) == waits
    assert adapter.last.used == 60
    plain(x)
    assert identical(adapter.state_dict()["state"]["model"], plain.state_dict()["state"]["model"])


@pytest.mark.parametrize("method", NEVER_GATHERS)
def test_a_method_for_small_batches_learns_from_each(method):
    watched_one, plain = (steep.adapt(Prism(), method, guard=g, **QUICK.get(method, {})) for g in ("recover", "skip"))
    for part in rainbow(0)[0].split(12):
        assert torch.equal(watched_one(part), plain(part))
        assert watched_one.last.skipped == plain.last.skipped


@pytest.mark.parametrize(
    ("method", "least"), [("bn", 0.95), ("tent", 0.95), ("energy", 0.95), (AlphaBN(alpha=0.99), 0.94)], ids=str
)  # alpha-bn answers its first small batches as it is made to
@pytest.mark.parametrize("size", [60, 20])
def test_a_batch_of_one_class_is_known_by_the_stream_before_it(method, least, size):
    """By itself such a batch seems to hold all classes."""
    right = {}
    for guard in ("skip", "recover"):
        adapter = steep.adapt(Prism(), method, guard=guard)
        for s in range(8):
            for part in rainbow(s)[0].split(size):
                adapter(part)
        hits = []
        for s in range(10):
            label = s % 5
            hits += [(adapter(part).argmax(dim=1) == label).float().mean() for part in one_class(label, s).split(size)]
        right[guard] = float(torch.stack(hits).mean())
    assert right["skip"] < 0.7
    assert right["recover"] > least


def at_home(scale: float = 4.0) -> Prism:
    """A model that is sure, and whose images have not shifted."""
    model = Prism()
    x = torch.cat([rainbow(s)[0] for s in range(5)])
    model.norm.running_mean, model.norm.running_var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3))
    model.head.weight.data *= scale
    return model.eval()


def without_a_class(seed: int) -> torch.Tensor:
    """Sixty images of four of the five classes, which shifts the statistics of the batch."""
    x, labels = rainbow(seed)
    part = x[labels != seed % 5]
    return torch.cat([part, part])[:60]


@pytest.mark.parametrize("method", ["dua", "pl", "lame", "t3a"])
@pytest.mark.parametrize("size", [60, 20])
def test_where_nothing_has_shifted_the_source_model_answers_for_methods_that_do_not_normalise_by_the_batch(
    method, size
):
    model = at_home()
    adapter = steep.adapt(model, method, guard="recover")
    for s in range(8):
        for x in without_a_class(s).split(size):
            answer = adapter(x)
            if s:  # a first look has been taken
                assert torch.allclose(answer, model(x), atol=1e-5)
                assert adapter.last.answered_by == "the source model"


@pytest.mark.parametrize("method", ["memo", "tent"])
def test_a_method_that_has_no_say_answers_by_the_stream_too_where_classes_are_few(method):
    adapter = steep.adapt(Prism(), method, guard="recover", precision="float32")
    adapter(rainbow(0)[0])
    state, x = adapter._state, one_class(0, 0)
    state.watch_trusted, state.watch_uneven, state.watch_rest = "stream", True, 100
    expected = for_uneven_classes(trust.source_answer(state, x, "stream"))
    assert torch.allclose(adapter.peek(x), expected, atol=1e-5)


@pytest.mark.parametrize("size", [60, 20])
def test_running_statistics_do_not_follow_images_that_come_class_by_class(size):
    """They would take what all images of a class have in common for the shift."""
    for guard in ("skip", "recover"):
        adapter = steep.adapt(at_home(1.0), "dua", guard=guard, images=10**6, copies=3, floor=0.1)
        known = [rainbow(s)[0] for s in range(4)] + [one_class(s, s) for s in range(3)]
        for part in torch.cat(known).split(size):
            adapter(part)
        before = adapter.model.norm.running_mean.clone()
        for s in range(3, 10):  # small batches have taught it until there were enough for a look
            for part in one_class(s % 5, s).split(size):
                adapter(part)
        assert torch.equal(adapter.model.norm.running_mean, before) == (guard == "recover")


def test_where_little_has_shifted_both_answer_and_the_surer_one_counts_for_more():
    """Derived in float64: each logit weighs as much as the other model is unsure, averaged over the looks."""
    model, seen = at_home(scale=1.0), []
    adapter = steep.adapt(model, "bn", guard="recover", precision="float32")

    def unsure(logits):
        p = logits.detach().softmax(1)
        return float(-(p * p.log()).sum(1).mean())

    for s in range(8):
        x = without_a_class(s)
        answer = adapter(x)
        wide = copy.deepcopy(model).double()
        by_source = wide(x.double())
        wide.norm.train()
        by_batch = wide(x.double())
        now = [unsure(by_source), unsure(by_batch)]
        seen = [(a + b) / 2 for a, b in zip(seen or now, now, strict=True)]
        share = seen[1] / sum(seen)
        assert share > 0.6  # the source model is surer, so it counts for more
        assert torch.allclose(answer.double(), share * by_source + (1 - share) * by_batch, atol=0.01)
        assert adapter.last.answered_by == "the source model and the method together"


def test_a_method_that_is_of_another_opinion_has_no_say_where_little_has_shifted(monkeypatch):
    monkeypatch.setattr(trust, "why_lost", lambda *_: None)  # it is not brought back
    model = at_home()
    adapter = steep.adapt(model, Smash(), guard="recover")
    adapter(without_a_class(0))  # answered before the first step
    for s in range(1, 8):
        x = without_a_class(s)
        assert torch.allclose(adapter(x), model(x), atol=1e-4)
        assert adapter.last.answered_by == "the source model"


class Slips(Tent):
    """Answers as tent, but once it has learned some images by the class that it holds least likely."""

    wrong = 0

    def predict(self, state, x):
        logits = super().predict(state, x)
        wrong = self.wrong if state.model.net.norm.bias.any() else 0
        return torch.cat([-logits[:wrong], logits[wrong:]])


@pytest.mark.parametrize(("wrong", "silent", "lost"), [(1, None, None), (3, 1, None), (6, 0, 1)])
def test_a_method_that_agrees_less_with_the_source_model_than_its_own_answers_do_has_no_say(
    monkeypatch, wrong, silent, lost
):
    """Of 60 images each: half of 5 % is within 3 % at the first look, three quarters of it are not at the second."""
    monkeypatch.setattr(Slips, "wrong", wrong)
    model = at_home(scale=1.0)
    adapter = steep.adapt(model, Slips(lr=1e-6), guard="recover")
    for s in range(lost or 6):
        x = without_a_class(s)
        answer = adapter(x)
        spoke = silent is None or s < silent
        expected = "the source model and the method together" if spoke else "the source model"
        assert adapter.last.answered_by == expected
        assert adapter.last.note is None
        if not spoke:
            assert torch.allclose(answer, model(x), atol=1e-4)
    if lost is not None:
        adapter(without_a_class(lost))
        assert "agree less often with the source model" in adapter.last.note


def test_whose_answer_it_is_where_the_method_alone_was_trusted(monkeypatch):
    monkeypatch.setattr(Slips, "wrong", 3)
    adapter, plain = (steep.adapt(Prism(), m, guard=g) for m, g in ((Slips(lr=1e-6), "recover"), ("bn", "skip")))
    reported = []
    for s in range(6):
        x = rainbow(s)[0]
        answer = adapter(x)
        reported.append(adapter.last.answered_by)
        if reported[-1]:
            assert torch.allclose(answer, plain(x), atol=1e-4)
    assert reported[0] is None
    assert set(reported[2:]) == {"the model without what it has learned"}


def test_an_answer_of_its_own_kind_is_not_taken_for_getting_lost():
    """Such as a mean of views: it agrees less with the source model from the start."""

    class OwnWay(Tent):
        def predict(self, state, x):
            logits = super().predict(state, x)
            return torch.cat([-logits[:6], logits[6:]])

    adapter = steep.adapt(at_home(scale=1.0), OwnWay(lr=1e-6), guard="recover")
    for s in range(6):
        adapter(without_a_class(s))
        assert adapter.last.note is None
        assert adapter._state.watch_behind == 0


def test_in_an_episode_one_image_says_nothing_of_the_method(monkeypatch):
    monkeypatch.setattr(Slips, "wrong", 1)
    adapter = steep.adapt(at_home(scale=0.5), Slips(lr=1e-6), guard="recover", episodic=True)
    for s in range(5):
        adapter(without_a_class(s)[:8])
        assert adapter.last.note is None


def test_looks_cost_four_passes_each():
    model, calls = Prism(), {}
    for guard in ("skip", "recover"):
        adapter, passes = steep.adapt(model, "tent", guard=guard), []
        adapter.model.register_forward_hook(lambda *_, passes=passes: passes.append(1))
        played(adapter, 32)
        calls[guard] = len(passes)
    looks = {*range(watched.FIRST), *range(0, 32, watched.EVERY)}
    # the source model by three kinds of statistics, and the method after its step
    assert calls["recover"] == calls["skip"] + 4 * len(looks)


@pytest.mark.parametrize("size", [60, 12])
def test_it_goes_on_from_a_file_or_a_copy_in_the_middle_of_it_all(size, tmp_path):
    batches = [part for s in range(40) for part in rainbow(s)[0].split(size)][:60]
    make = lambda: steep.adapt(Prism(), Smash(), guard="recover")  # noqa: E731
    straight = make()
    answers = [straight(x) for x in batches]
    for stop in (1, 5, 13):
        stopped = make()
        for x in batches[:stop]:
            stopped(x)
        stopped.save(tmp_path / "state")
        resumed = make()
        resumed.load_state_dict(steep.core.io.saving.load(tmp_path / "state"))
        for other in (resumed, copy.deepcopy(stopped)):
            assert all(torch.equal(other(x), answer) for x, answer in zip(batches[stop:], answers[stop:], strict=True))
    straight.reset()
    assert all(torch.equal(straight(x), answer) for x, answer in zip(batches, answers, strict=True))


def test_a_watched_adapter_can_be_pickled():
    adapter = steep.adapt(Prism(), "tent", guard="recover")
    for s in range(3):
        adapter(rainbow(s)[0])
    twin = pickle.loads(pickle.dumps(adapter))
    assert torch.equal(twin(rainbow(3)[0]), adapter(rainbow(3)[0]))
    assert all(torch.equal(a, b) for a, b in zip(tensors(twin._state), tensors(adapter._state), strict=True))


@pytest.mark.parametrize("method", steep.METHODS)
@pytest.mark.parametrize("size", [60, 12])
def test_blank_frames_are_answered_and_teach_nothing(method, size):
    """A dark or a dead camera: by batch statistics such frames would spoil the answers to all others."""
    adapter, never_saw_them = (
        steep.adapt(Prism(), method, guard="recover", source=[rainbow(9)[0]], **QUICK.get(method, {})) for _ in range(2)
    )
    blank = torch.tensor([0.0, 0.5, 1.0]).repeat(size // 3).view(-1, 1, 1, 1)
    for s in range(6):
        for x in rainbow(s)[0].split(size):
            both = torch.stack([blank.expand_as(x), x], dim=1).flatten(0, 1)
            answers = adapter(both)
            assert torch.equal(answers[1::2], never_saw_them(x))
            assert answers[::2].isfinite().all()
            assert adapter.last == never_saw_them.last
    assert identical(adapter.state_dict()["state"], never_saw_them.state_dict()["state"])
    assert adapter(blank.expand_as(x)).isfinite().all()
    assert adapter.last.skipped == "no good image in the batch"
    assert identical(adapter.state_dict()["state"], never_saw_them.state_dict()["state"])


def test_blank_frames_count_where_the_method_is_to_be_as_published():
    plain, expected = (steep.adapt(Prism(), "bn", guard="skip") for _ in range(2))
    x = rainbow(0)[0]
    dark = torch.cat([x, torch.zeros_like(x)])
    assert not torch.equal(plain(dark)[: len(x)], expected(x))


def test_among_blank_frames_a_bad_one_is_still_refused_or_answered_with_nan():
    x = rainbow(0)[0].clone()
    x[3], x[5] = 0.5, float("nan")
    x[8], x[8, 1] = 0.5, 5e6  # each channel has one value, but that is no frame
    with pytest.raises(steep.errors.InputError, match="2 of 60 images"):
        steep.adapt(Prism(), "bn", guard="recover")(x)
    answers = steep.adapt(Prism(), "bn", guard="recover", bad_images="nan")(x)
    assert answers.isnan().any(dim=1).nonzero().flatten().tolist() == [5, 8]


def test_what_is_done_is_said_once(caplog):
    adapter = steep.adapt(Prism(), "tent", guard="recover")
    for s in range(8):
        for part in rainbow(s)[0].split(12):
            adapter(part)
    messages = [record.getMessage() for record in caplog.records]
    assert len([line for line in messages if "images are gathered" in line and line.startswith("tent: ")]) == 1
    assert caplog.records[0].levelname == "WARNING"


def test_an_interrupt_while_blank_frames_are_answered_leaves_no_trace(monkeypatch):
    adapter, x = steep.adapt(Prism(), "tent", guard="recover"), rainbow(0)[0]
    adapter(x)
    before, last = adapter.state_dict(), adapter.last
    dark = torch.cat([x, torch.zeros_like(x[:3])])
    with monkeypatch.context() as patch:
        patch.setattr(adapter._runner, "peek", lambda x: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            adapter(dark)
    assert identical(adapter.state_dict(), before)
    assert adapter.last == last
    assert torch.equal(adapter.peek(dark)[60:], adapter(dark)[60:])


def test_blank_frames_of_an_episode_know_nothing_of_the_one_before():
    x = rainbow(0)[0]
    for first in (x, torch.zeros_like(x)):
        adapter = steep.adapt(Prism(), "tent", guard="recover", episodic=True, lr=0.1)
        adapter(first)
        answer = adapter(torch.full_like(x, 0.5))
        assert torch.allclose(answer, steep.adapt(Prism(), "tent", guard="recover")(torch.full_like(x, 0.5)), atol=1e-5)


def test_a_peek_where_both_answer_is_the_answer():
    model = at_home(scale=1.0)
    adapter = steep.adapt(model, "bn", guard="recover", precision="float32")
    for s in range(4):
        answer = adapter(without_a_class(s))
    assert adapter.last.answered_by == "the source model and the method together"
    assert torch.allclose(adapter.peek(without_a_class(3)), answer, atol=1e-5)


def test_a_first_look_needs_few_images():
    """A stream of single images that has shifted waits no longer for the method's answers than it must."""
    adapter, asked = steep.adapt(Prism(), "tent", guard="recover"), []
    for image in rainbow(0)[0]:
        adapter(image[None])
        asked.append(int(adapter._state.watch_looks > trust.PRIOR))
    assert asked.index(1) == watched.GLANCE - 1
    assert adapter._state.watch_looks == trust.PRIOR + 2


@pytest.mark.parametrize("line", range(8))
def test_an_interrupt_while_the_source_is_asked_leaves_no_trace(line):
    """Ctrl-C between any two places that are put back."""
    adapter = steep.adapt(Prism(), "tent", guard="recover")
    adapter(rainbow(0)[0])
    before, origin = adapter.state_dict(), [p.clone() for p in adapter._state.watch_source_parameters]
    names = ("parameters_at", "fixed_statistics")

    def interrupted(frame, event, arg):
        if frame.f_code.co_name in names:
            frame.f_trace = count
            return count
        return None

    seen = []

    def count(frame, event, arg):
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == 12 + 7 * line:
                raise KeyboardInterrupt
        return count

    sys.settrace(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            adapter(rainbow(1)[0])
    finally:
        sys.settrace(None)
    assert all(map(torch.equal, adapter._state.watch_source_parameters, origin))
    assert not mixing_of(adapter.model.norm).off
    assert identical(adapter.state_dict(), before)
