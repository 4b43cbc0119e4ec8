"""A step recorded as a CUDA graph, or compiled, is the same step."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from test_guard import QUICK, Brittle

import steep
from contract import identical
from nets import images, net
from steep.core.losses import energy
from steep.core.method import Method, Step
from steep.core.optim import DescentState, adam, descend
from steep.core.run import runner
from steep.errors import SteepWarning

pytestmark = pytest.mark.gpu
HYPER = {
    **QUICK,
    "tea": {"sgld_steps": 2, "buffer_size": 256},
    "tea-fast": {"buffer_size": 256},
    "dua": {"copies": 3},
}


def adapter_for(method: str, model=None, **options) -> steep.Adapter:
    return steep.adapt(model or net(), method, device="cuda", source=[images()], **HYPER.get(method, {}), **options)


def recorded(adapter: steep.Adapter) -> int:
    return len(adapter._runner.graphs.recordings)


@pytest.mark.parametrize(
    "options", [{}, {"steps": 2}, {"episodic": True}, {"guard": "recover"}, {"guard": "off"}], ids=str
)
@pytest.mark.parametrize("method", steep.METHODS)
def test_a_graph_repeats_the_step(method, options):
    """Random numbers included, over full batches, a smaller one and a full one again."""
    by_hand = adapter_for(method, deterministic=True, **options)
    graph = adapter_for(method, graph=True, deterministic=True, **options)
    kept = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", SteepWarning)
        for s, n in enumerate((100, 100, 100, 100, 100, 20, 100, 100)):  # dua learns from the first 80 images
            x = images(n, seed=s)
            ours, theirs = graph(x), by_hand(x)
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
            assert graph.last.used == by_hand.last.used
            assert graph.last.energy_before == pytest.approx(by_hand.last.energy_before, rel=1e-5)
            kept.append((ours, theirs))
    answered_after = graph.predict == "after" and graph.raw.steps[-1].moved
    works = 1 + answered_after if graph.method.repeats(graph._state, x) else 0
    if options == {"guard": "recover"}:  # a method that is lost on such images rests, and has nothing to record
        works *= getattr(graph._state, "watch_rests", 0) == 0
    if options == {"episodic": True} and method in ("t3a", "dua"):  # a reset gives them other tensors
        works = min(works, recorded(graph))
    assert recorded(graph) == works
    for ours, theirs in kept:  # an answer is the caller's: no later replay writes to it
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", ["tent", "sar", "tea"])
def test_reset_and_resume_go_on_under_a_graph(method, tmp_path):
    graph = adapter_for(method, graph=True, deterministic=True)
    first = [graph(images(seed=s)) for s in range(8)]
    assert recorded(graph)
    graph.reset()
    assert all(torch.equal(graph(images(seed=s)), first[s]) for s in range(5))
    graph.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net(), device="cuda", graph=True)
    assert all(torch.equal(resumed(images(seed=s)), first[s]) for s in range(5, 8))


@pytest.mark.parametrize("method", ["tent", "eta", "sar", "tea"])
def test_the_guard_works_inside_a_graph(method):
    make = lambda: adapter_for(method, model=Brittle(), graph=True)  # noqa: E731
    undisturbed, disturbed = make(), make()
    for s in range(8):
        assert torch.equal(disturbed(images(seed=s)), undisturbed(images(seed=s)))
        if s in (1, 4, 6):
            before = disturbed.state_dict()["state"]
            with pytest.warns(SteepWarning, match="not finite") if s == 1 else nullcontext():  # once is enough
                disturbed(images(seed=s) + 10)
                assert "not finite" in disturbed.last.skipped
            assert identical(disturbed.state_dict()["state"], before)
    assert recorded(disturbed)
    assert disturbed.last.undone == 3


@pytest.mark.parametrize("options", [{}, {"steps": 2}, {"episodic": True}, {"guard": "recover"}], ids=str)
@pytest.mark.parametrize("method", ["tent", "eta", "sar", "tea"])
def test_a_batch_cut_off_after_its_replays_leaves_no_trace(method, options, monkeypatch):
    """The snapshot lies in the memory of the recording, chains that were overwritten too."""
    # at a low rate, as the default guard brings a model back that is lost, and records nothing for a while
    make = lambda: adapter_for(method, graph=True, deterministic=True, predict="after", lr=1e-5, **options)  # noqa: E731
    adapter, twin = make(), make()
    # the default guard learns from fifty images on, and looks at the first batches and at every eighth by hand
    some = lambda s: images(100, seed=s)  # noqa: E731
    begun = 13
    for s in range(begun):
        adapter(some(s))
        twin(some(s))
    assert recorded(adapter) == 2
    before, report = adapter.state_dict(), adapter.last
    predict = runner.Runner._predict

    def cut_off(self, x):
        predict(self, x)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_predict", cut_off)
        with pytest.raises(KeyboardInterrupt):
            adapter(some(99))
    assert identical(adapter.state_dict(), before)
    assert adapter.last == report
    assert all(torch.equal(adapter(some(s)), twin(some(s))) for s in range(begun, begun + 3))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_around_the_launch_of_a_replay_leaves_no_trace(moment, monkeypatch):
    """Before it the snapshot in the recording is still the last batch's, and nothing is to be undone."""
    make = lambda: adapter_for("tea", graph=True, deterministic=True)  # noqa: E731
    adapter, twin = make(), make()
    for s in range(5):
        adapter(images(seed=s))
        twin(images(seed=s))
    state = adapter.state_dict()
    replay = torch.cuda.CUDAGraph.replay

    def cut_off(self):
        if moment == "after":
            replay(self)
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda.CUDAGraph, "replay", cut_off)
            with pytest.raises(KeyboardInterrupt):
                adapter(images(seed=9))
        assert identical(adapter.state_dict(), state)
    assert all(torch.equal(adapter(images(seed=s)), twin(images(seed=s))) for s in range(5, 8))


def test_a_recording_that_is_cut_off_leaves_no_trace(monkeypatch):
    """While a step is recorded its Python runs, and no kernel: what it leaves is of no use."""
    from steep.methods.tea import TEA

    make = lambda: adapter_for("tea", graph=True, deterministic=True)  # noqa: E731
    adapter, twin = make(), make()
    for s in range(2):
        adapter(images(seed=s))
        twin(images(seed=s))
    state, step = adapter.state_dict(), TEA.step

    def cut_off(self, state, x):
        step(self, state, x)
        assert torch.cuda.is_current_stream_capturing()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TEA, "step", cut_off)
        with pytest.raises(KeyboardInterrupt):
            adapter(images(seed=2))
    assert identical(adapter.state_dict(), state)
    assert all(torch.equal(adapter(images(seed=s)), twin(images(seed=s))) for s in range(2, 8))
    assert recorded(adapter) == 2


@dataclass(frozen=True, kw_only=True)
class Asking(Method[DescentState]):
    """A method that waits for the device in every step."""

    name: ClassVar = "asking"
    paper: ClassVar = "–"
    predicts: ClassVar = "before"

    def init(self, source):
        model = source.prepare("norm", "batch")
        return DescentState(model, adam(model, 1e-3))

    def step(self, state, x):
        logits = state.model(x)
        loss = energy(logits).mean()
        if loss.item() < 1e9:
            descend(state.optimizer, loss)
        return Step(logits, loss=loss.detach())


def test_results_of_before_a_reset_may_still_be_held():
    graph = adapter_for("tea", graph=True, deterministic=True)
    first = [graph(images(seed=s)) for s in range(5)]
    raw = graph.raw  # in the memory of the recordings
    assert raw.verdict is not None
    assert recorded(graph) == 2
    graph.reset()
    again = [graph(images(seed=s)) for s in range(5)]
    assert recorded(graph) == 2
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_recording_that_cannot_begin_leaves_stream_and_random_numbers_usable():
    pool, other = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=pool):
        kept = torch.zeros(4, device="cuda")
    del other  # its pool has no graph any more, but a tensor: torch refuses to share it
    by_hand, graph = adapter_for("tea"), adapter_for("tea", graph=True)
    graph._runner.graphs._pool = pool
    before = torch.cuda.current_stream()
    with pytest.warns(SteepWarning, match="cannot be recorded"):
        answers = [graph(images(seed=s)) for s in range(5)]
    for s, answer in enumerate(answers):
        torch.testing.assert_close(answer, by_hand(images(seed=s)), rtol=1e-5, atol=1e-5)
    assert torch.cuda.current_stream() == before
    assert torch.rand(2, device="cuda").isfinite().all()
    assert kept.shape == (4,)


def test_what_cannot_be_recorded_runs_by_hand_with_one_warning():
    graph, by_hand = (steep.adapt(net(), Asking(), device="cuda", graph=g) for g in (True, False))
    with pytest.warns(SteepWarning, match="cannot be recorded") as caught:
        answers = [graph(images(seed=s)) for s in range(6)]
    assert len([w for w in caught if issubclass(w.category, SteepWarning)]) == 1
    for s, answer in enumerate(answers):
        torch.testing.assert_close(answer, by_hand(images(seed=s)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("guard", ["off", "skip"])
@pytest.mark.parametrize("graph", [False, True])
def test_memory_stands_still(graph, guard):
    adapter = adapter_for("tea", graph=graph, guard=guard)
    x = images(64).cuda()
    for _ in range(50):
        adapter(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(2000):
        adapter(x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + 1024


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*", "ignore:TensorFloat32")  # of torch's compiler
@pytest.mark.parametrize("method", ["tent", "tea", "sar", "bn"])
def test_compiled_equals_uncompiled_and_compiles_once(method, monkeypatch):
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # kernels differ, and TF32 rounds to 1e-3

    plain, compiled = (adapter_for(method, compile=c, graph=c) for c in (False, True))
    graphs = None
    for s, n in enumerate((64, 64, 64, 64, 24, 64)):
        torch.testing.assert_close(compiled(images(n, seed=s)), plain(images(n, seed=s)), rtol=1e-4, atol=1e-4)
        now = counters["stats"]["unique_graphs"]
        assert s < 2 or now == graphs, "recompiled"
        graphs = now
