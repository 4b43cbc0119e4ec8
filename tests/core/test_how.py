"""How a step is computed changes nothing about what it computes: in place, recomputed, compiled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import steep
from nets import images, net
from steep.core.run.graph import Graphs
from steep.core.run.recompute import blocks, recomputed
from steep.errors import SteepWarning

QUICK = {
    "cotta": {"copies": 2},
    "memo": {"copies": 2},
    "rotta": {"memory": 8, "every": 12},
    "tea": {"sgld_steps": 2, "buffer_size": 64},
    "tea-fast": {"buffer_size": 64},
    "pl": {"threshold": 0.3},
}


def adapter_for(model: nn.Module, method: str, **options) -> steep.Adapter:
    return steep.adapt(model, method, source=[images()], **QUICK.get(method, {}), **options)


@pytest.mark.parametrize("method", steep.METHODS)
def test_in_place_adapts_the_model_given_and_answers_the_same(method):
    mine = net()
    inside = adapter_for(mine, method, inplace=True)
    copied = adapter_for(net(), method)
    for s in range(3):
        assert torch.equal(inside(images(seed=s)), copied(images(seed=s)))
    assert inside.model is mine
    inside.reset()
    for parameter, source in zip(mine.parameters(), net().parameters(), strict=True):
        assert torch.equal(parameter, source)


def test_a_model_that_cannot_be_adapted_in_place_comes_back_as_it_was():
    mine = nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).train()
    with pytest.raises(steep.errors.NothingToAdaptError):
        steep.adapt(mine, "bn", inplace=True)
    assert mine.training
    assert all(parameter.requires_grad for parameter in mine.parameters())


def test_adapting_in_place_again_and_again_leaves_one_hook():
    mine = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(144, 5))
    for _ in range(3):
        steep.adapt(mine, "tent", inplace=True)
    assert len(mine[1]._forward_pre_hooks) == 1


def residual() -> nn.Module:
    torch.manual_seed(0)
    return steep.models.build("wrn-10-1", 10)


def test_the_blocks_of_a_residual_net_are_its_residual_blocks():
    listed = blocks(residual())
    assert [type(block).__name__ for block in listed] == ["WideBlock"] * 3
    assert blocks(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())) == []


@pytest.mark.parametrize("method", ["tent", "sar", "tea", "bn"])
def test_recomputed_equals_kept(method):
    kept, again = (adapter_for(residual(), method, recompute=r) for r in (False, True))
    for s in range(3):
        x = images(20, seed=s, size=16)
        torch.testing.assert_close(again(x), kept(x), rtol=1e-5, atol=1e-5)
    assert "forward" not in vars(blocks(again.model)[0]), "the model is left as it was"


def test_a_block_used_twice_and_one_with_a_forward_of_its_own_are_recomputed_and_left_alone():
    twice = residual()
    block = blocks(twice)[0]
    plain = type(block).forward

    def doubled(x):
        return plain(block, x) * 2

    block.forward = doubled
    model = nn.Sequential(twice)
    with recomputed(model):
        assert block.forward is not doubled
        model(images(4, size=16))
    assert block.forward is doubled
    part = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1))
    row = nn.Sequential(nn.Conv2d(3, 4, 1), part, part)
    assert blocks(row) == [part]
    with recomputed(row):
        row(images(4))
    assert "forward" not in vars(part)


def test_a_model_without_blocks_is_told_that_nothing_is_saved():
    flat = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 5))
    with pytest.warns(SteepWarning, match="nothing is saved"):
        steep.adapt(flat, "tent", recompute=True)


def test_recomputing_keeps_far_less():
    """Bytes that autograd saves during the forward pass of a step."""
    kept = {}
    for recompute in (False, True):
        model = adapter_for(residual(), "tent", recompute=recompute)._state.model
        sizes: list[int] = []
        with saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t):
            model(images(20, size=16))
        kept[recompute] = sum(sizes)
    assert kept[True] < 0.5 * kept[False]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # torch's compiler, on import
@pytest.mark.parametrize("method", ["tent", "tea"])
def test_compiled_equals_uncompiled_and_the_last_batch_compiles_nothing(method):
    from torch._dynamo.utils import counters

    plain, compiled = (adapter_for(net(), method, compile=c) for c in (False, True))
    graphs = []
    for s, n in enumerate((32, 32, 32, 24, 32)):
        torch.testing.assert_close(compiled(images(n, seed=s)), plain(images(n, seed=s)), rtol=1e-4, atol=1e-4)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] < graphs[1] == graphs[2] == graphs[3] == graphs[4]


def test_what_cannot_be_compiled_runs_with_one_warning(monkeypatch):
    def broken(*_, **__):
        def call(x):
            raise torch._dynamo.exc.BackendCompilerFailed(lambda: None, RuntimeError("no compiler here"), None)

        return call

    import torch._dynamo.exc
    import torch._inductor.exc

    monkeypatch.setattr(torch, "compile", broken)
    plain, compiled = (adapter_for(net(), "tent", compile=c) for c in (False, True))
    assert torch.equal(compiled(images(seed=0)), plain(images(seed=0)))
    with pytest.warns(SteepWarning, match="runs uncompiled"):
        answer = compiled(images(seed=1))
    assert torch.equal(answer, plain(images(seed=1)))
    assert torch.equal(compiled(images(seed=2)), plain(images(seed=2)))  # a second warning would be an error here


@pytest.fixture
def traced_only(monkeypatch):
    """torch.compile that traces and then runs what it was given: quick, and it compiles as often."""
    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: compile(function, backend="eager", **how))


@pytest.mark.slow
def test_every_adapter_of_a_process_is_compiled(traced_only):
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    for s in range(10):  # torch keeps 8 programs of one function unless told otherwise
        adapter = adapter_for(net(), "tent", compile=True)
        adapter(images(32 + s, seed=0))
        adapter(images(32 + s, seed=1))
    assert counters["stats"]["unique_graphs"] == before + 10


@pytest.mark.slow
def test_dua_does_not_compile_for_every_image(traced_only):
    from torch._dynamo.utils import counters

    before = counters["stats"]["unique_graphs"]
    adapter = steep.adapt(net(), "dua", compile=True, copies=3)
    for s in range(4):
        adapter(images(32, seed=s))
    assert counters["stats"]["unique_graphs"] <= before + 2


def test_graph_without_a_gpu_is_simply_not_used():
    plain, asked = (adapter_for(net(), "tea", graph=g) for g in (False, True))
    for s in range(4):
        assert torch.equal(asked(images(seed=s)), plain(images(seed=s)))


def test_a_prediction_is_recorded_after_the_step_whose_snapshot_it_would_overwrite(monkeypatch):
    """Recordings share memory, which is safe in this order alone; the work itself needs a GPU and is not done here."""
    made = []
    fake = lambda self, work, x, state, addresses: made.append(work) or SimpleNamespace(addresses=addresses)  # noqa: E731
    monkeypatch.setattr(Graphs, "_record", fake)
    state = steep.adapt(net(), "tent")._state
    x, graphs = SimpleNamespace(is_cuda=True, shape=(60, 3, 8, 8), dtype=torch.float32), Graphs(True)
    for batch in range(6):
        if batch > 1:  # the first two steps were done by hand: the guard looked at them
            graphs.recording("step", "step", x, state, reads_model_only=False)
        graphs.recording("predict", "predict", x, state, after="step", reads_model_only=True)
    assert made == ["step", "predict"]
