"""A batch is adapted on and answered as a whole, or nothing has happened: wherever the call is cut off."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest
import torch
from test_guard import Brittle, Prism, Wrecker, rainbow

import steep
from contract import identical
from nets import Counting, images, net
from steep.core.run import runner, trust, watched

pytestmark = [pytest.mark.hostile, pytest.mark.filterwarnings("ignore::steep.errors.SteepWarning")]
HYPER = {
    "tea": {"sgld_steps": 2, "buffer_size": 64},
    "dua": {"images": 10**6, "copies": 3},
    "pl": {"threshold": 0.3},
    "eta": {"novelty": 2.0},
    "sar": {"margin_classes": None, "margin": 9.0},
}
METHODS = ("bn", "dua", "pl", "tent", "eta", "sar", "tea")


class Cut(BaseException):
    """Not an error that anybody expects: like Ctrl-C."""


@contextmanager
def cut_off(at: int, error: BaseException) -> Iterator[list[str]]:
    """Raise before the call number `at` of a forward, a backward or an optimiser's step, counted together."""
    places = [
        (torch.nn.Linear, "forward"),
        (torch.nn.BatchNorm2d, "forward"),
        (torch.Tensor, "backward"),
        (torch.autograd, "grad"),
        (torch.optim.Adam, "step"),
        (torch.optim.SGD, "step"),
    ]
    calls: list[str] = []

    def counted(name: str, real: Callable) -> Callable:
        def call(*args, **kwargs):
            calls.append(name)
            if len(calls) == at:
                raise error
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for place, name in places:
            patch.setattr(place, name, counted(name, getattr(place, name)))
        yield calls


def facts(adapter: steep.Adapter) -> tuple:
    report = adapter.last
    return adapter.state_dict(), None if report is None else asdict(report)


def check_every_cut(make: Callable[[], steep.Adapter], batch: Callable[[int], torch.Tensor], before: int) -> int:
    """Cut off one batch at every place in turn; what is left must be what was, and go on as if nothing had been."""
    twin = make()
    for s in range(before):
        twin(batch(s))
    adapter = make()
    for s in range(before):
        adapter(batch(s))
    start = facts(adapter)
    at = 1
    while True:
        with cut_off(at, KeyboardInterrupt()) as calls:
            try:
                answer = adapter(batch(before))
            except KeyboardInterrupt:
                answer = None
        if answer is not None:
            break
        assert len(calls) == at
        assert identical(facts(adapter), start), f"cut off at call {at}, a {calls[-1]}"
        at += 1
    assert torch.equal(answer, twin(batch(before)))
    assert identical(facts(adapter), facts(twin))
    assert torch.equal(adapter(batch(before + 1)), twin(batch(before + 1)))
    return at - 1


@pytest.mark.parametrize(("predict", "guard"), [("before", "skip"), ("after", "recover")])
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_every_cut_leaves_everything_as_before(method, steps, predict, guard):
    options = {"steps": steps, "predict": predict, "guard": guard, **HYPER.get(method, {})}
    number = 3 if method == "dua" else 20  # it makes a pass for each image
    cuts = check_every_cut(lambda: steep.adapt(net(), method, **options), lambda s: images(number, seed=s), before=2)
    assert cuts >= 3 * steps


@pytest.mark.parametrize("method", ["tent", "tea", "eta"])
def test_the_first_batch_and_an_episodic_one_are_as_whole(method):
    make = lambda **options: steep.adapt(net(), method, **HYPER.get(method, {}), **options)  # noqa: E731
    check_every_cut(lambda: make(steps=2), lambda s: images(seed=s), before=0)
    check_every_cut(lambda: make(episodic=True, steps=2), lambda s: images(seed=s), before=2)
    check_every_cut(lambda: make(episodic=True), lambda s: images(seed=s), before=2)


def test_buffers_that_forwards_write_and_replace_come_back():
    check_every_cut(lambda: steep.adapt(Counting(), "tea", steps=2, **HYPER["tea"]), lambda s: images(seed=s), before=2)


@pytest.mark.parametrize("before", [0, 8, 9])
def test_a_look_a_recovery_and_a_rest_are_part_of_the_batch(before):
    """A look may bring another state back, and a rest follows that."""
    make = lambda: steep.adapt(Prism(), Wrecker(lr=0.01), guard="recover", predict="after")  # noqa: E731
    check_every_cut(make, lambda s: rainbow(s)[0], before)


def test_a_recovery_that_breaks_off_leaves_the_state_before_the_batch(monkeypatch):
    """Of tea: its chains are brought back by the recovery too."""
    monkeypatch.setattr(trust, "why_lost", lambda *_: "on purpose")
    monkeypatch.setattr(watched, "FULL", 8)
    adapter = steep.adapt(net(), "tea", guard="recover", **HYPER["tea"])
    adapter(images(seed=0))
    adapter._state.watch_rest = 0
    start = facts(adapter)
    state, real = type(adapter._state), type(adapter._state).restore

    def breaks_off(self, *args):
        real(self, *args)
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(state, "restore", breaks_off)
        with pytest.raises(Cut):
            adapter(images(seed=1))
    assert identical(facts(adapter), start)


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("full"), ValueError("odd")])
def test_an_error_in_the_answering_forward_undoes_the_step(error, monkeypatch):
    """Memory that gives out there is answered in pieces, by the model as it was; another error is the caller's."""
    adapter = steep.adapt(net(), "tea", **HYPER["tea"])
    adapter(images(seed=0))
    start = facts(adapter)
    twin = steep.adapt(net(), "tea", **HYPER["tea"])
    twin(images(seed=0))
    forward, calls = type(net()).forward, []

    def breaks_once(self, x):
        if not torch.is_grad_enabled():
            calls.append(len(x))
            if len(calls) == 1:
                raise error
        return forward(self, x)

    x = images(seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Sequential, "forward", breaks_once)
        if isinstance(error, ValueError):
            with pytest.raises(ValueError, match="odd"):
                adapter(x)
        else:
            with torch.no_grad():
                expected = torch.cat([forward(twin.model, piece) for piece in x.chunk(2)])
            assert torch.equal(adapter(x), expected)
            assert adapter.last.used == 0
            assert "without adapting" in adapter.last.skipped
    if isinstance(error, ValueError):
        assert identical(facts(adapter), start)
    else:
        assert identical(adapter.state_dict(), start[0])
    assert torch.equal(adapter(images(seed=2)), twin(images(seed=2)))


def test_a_second_step_that_is_harmful_is_undone_alone(monkeypatch):
    """A step's own undoing is no matter of the batch."""
    once = steep.adapt(net(), "tent")
    once(images(seed=0))
    twice = steep.adapt(net(), "tent", steps=2)
    judge, judged = runner.Runner._judge, []

    def harsh(self, *args):
        judged.append(1)
        verdict = judge(self, *args)
        return verdict | True if len(judged) == 2 else verdict

    monkeypatch.setattr(runner.Runner, "_judge", harsh)
    twice(images(seed=0))
    assert identical(once.state_dict()["state"], twice.state_dict()["state"])
    assert twice.last.undone == 1


def test_without_a_guard_last_never_tells_of_half_a_batch():
    adapter = steep.adapt(net(), "tea", guard="off", **HYPER["tea"])
    adapter(images(seed=0))
    report, raw = adapter.last, adapter.raw
    for at in range(1, 30):
        with cut_off(at, Cut()):
            try:
                adapter(images(seed=at))
            except Cut:
                assert adapter.last == report
                assert adapter.raw.steps is raw.steps
                assert all(p.grad is None for p in adapter.model.parameters())
            else:
                break
    assert 3 < at < 29


def test_a_guard_error_counts_as_a_verdict():
    """The model is as before, but the guard remembers: updates that stay large become the new usual."""
    adapter = steep.adapt(Brittle(), "tent", guard="raise")
    adapter(images())
    start, report = adapter.state_dict(), adapter.last
    with pytest.raises(steep.errors.GuardError):
        adapter(images() + 10)
    assert identical(adapter.state_dict()["state"], start["state"])
    assert asdict(adapter.last) == asdict(report) | {"undone": 1}


@pytest.mark.parametrize(
    ("method", "options"),
    [("tent", {"steps": 2, "predict": "after"}), ("tea", {"guard": "recover"}), ("tea", {"episodic": True})],
)
def test_an_interrupt_at_any_line_of_steep_leaves_all_or_nothing(method, options):
    """Ctrl-C comes between two lines of Python, any two."""
    make = lambda: steep.adapt(net(), method, **HYPER.get(method, {}), **options)  # noqa: E731
    twin, adapter = make(), make()
    for s in range(2):
        twin(images(seed=s))
        adapter(images(seed=s))
    before = facts(adapter)
    twin(images(seed=2))
    after = facts(twin)
    at, ends = 1, []
    while True:
        if interrupted(adapter, images(seed=2), at):
            now = facts(adapter)
            whole = identical(now, after)
            assert whole or identical(now, before), f"interrupted at line event {at}"
            ends.append(whole)
            if whole:  # the batch was over: begin again
                adapter = make()
                for s in range(2):
                    adapter(images(seed=s))
            at += 11  # a sample
        else:
            break
    assert ends.count(False) > 20


SPARED = {"revert", "forget_gradients", "_fill", "_members"}  # what undoes a batch: one Ctrl-C comes at a time
SPARED |= {"count"}  # leaves a lock: a trace can raise between a block's end and its exit, a signal cannot


def interrupted(adapter: steep.Adapter, x: torch.Tensor, at: int) -> bool:
    """Call the adapter, with a KeyboardInterrupt at the given line event inside core's own files."""
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        if "/steep/core/" not in frame.f_code.co_filename or frame.f_code.co_name in SPARED:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        adapter(x)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_a_call_passes_few_files():
    """What a reader must open to follow one batch of tent."""
    adapter = steep.adapt(net(), "tent")
    adapter(images(seed=0))
    files = set()

    def note(frame, event, arg):
        if event == "call" and "/steep/" in frame.f_code.co_filename:
            files.add(frame.f_code.co_filename.split("/steep/")[-1])

    sys.setprofile(note)
    try:
        adapter(images(seed=1))
    finally:
        sys.setprofile(None)
    assert {"core/adapter.py", "core/run/runner.py", "methods/tent.py"} <= files
    assert len(files) <= 10, sorted(files)
