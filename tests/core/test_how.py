"""How a step is computed changes nothing about what it computes: in place, recomputed, compiled."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import steep
from nets import images, net
from steep.core.recompute import blocks
from steep.errors import SteepWarning

QUICK = {"tea": {"sgld_steps": 2, "buffer_size": 64}, "tea-fast": {"buffer_size": 64}, "pl": {"threshold": 0.3}}


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


def residual() -> nn.Module:
    torch.manual_seed(0)
    return steep.models.build("wrn-10-1", 10)


def test_the_blocks_of_a_residual_net_are_its_residual_blocks():
    found = blocks(residual())
    assert [type(block).__name__ for block in found] == ["WideBlock"] * 3
    assert blocks(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())) == []


@pytest.mark.parametrize("method", ["tent", "sar", "tea", "bn"])
def test_recomputed_equals_kept(method):
    kept, again = (adapter_for(residual(), method, recompute=r) for r in (False, True))
    for s in range(3):
        x = images(20, seed=s, size=16)
        torch.testing.assert_close(again(x), kept(x), rtol=1e-5, atol=1e-5)
    assert "forward" not in vars(blocks(again.model)[0]), "the model is left as it was"


def test_recomputing_keeps_far_less():
    """Bytes that autograd saves during the forward pass of a step."""
    held = {}
    for recompute in (False, True):
        model = adapter_for(residual(), "tent", recompute=recompute)._state.model
        sizes: list[int] = []
        with saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t):
            model(images(20, size=16))
        held[recompute] = sum(sizes)
    assert held[True] < 0.5 * held[False]


@pytest.mark.slow
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


def test_graph_without_a_gpu_is_simply_not_used():
    plain, asked = (adapter_for(net(), "tea", graph=g) for g in (False, True))
    for s in range(4):
        assert torch.equal(asked(images(seed=s)), plain(images(seed=s)))
