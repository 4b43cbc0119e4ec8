"""The sampler: what it walks on, what it leaves alone, and its options. (Its law is in tests/methods.)"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import steep
from nets import conv_net, net
from steep.core.langevin import ReplayBuffer, langevin
from steep.errors import InputError


def quadratic(x):
    return (x**2).flatten(1).sum(dim=1) / 2


def test_gradient_clip_and_clamp_bound_each_chain():
    start = torch.tensor([[[[100.0]]], [[[0.1]]]])
    x = langevin(quadratic, start, steps=1, rate=1.0, noise=0.0, grad_clip=2.0)
    torch.testing.assert_close(x.flatten(), torch.tensor([98.0, 0.0]), atol=1e-5, rtol=0)
    x = langevin(quadratic, start, steps=3, rate=0.1, noise=0.0, clamp=(0.0, 1.0))
    assert x.max() <= 1.0
    assert x.min() >= 0.0


def test_no_steps_is_the_start_and_the_start_is_not_written():
    start = torch.rand(2, 1, 3, 3)
    kept = start.clone()
    assert torch.equal(langevin(quadratic, start, steps=0, rate=1.0, noise=1.0), kept)
    langevin(quadratic, start, steps=2, rate=0.5, noise=0.1)
    assert torch.equal(start, kept)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(3, 9), st.integers(3, 9), st.integers(1, 5))
def test_any_channels_and_sizes(channels, height, width, n):
    model = conv_net(nn.BatchNorm2d, channels=channels).eval()
    x = steep.sample(model, (n, channels, height, width), steps=2)
    assert x.shape == (n, channels, height, width)
    assert torch.isfinite(x).all()


@pytest.mark.parametrize("training", [True, False])
def test_sampling_leaves_the_model_as_it_was(training):
    model = net("batch").train(training)
    model[9].weight.grad = torch.ones_like(model[9].weight)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    steep.sample(model, (8, 3, 8, 8), steps=3)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(m.training == training for m in model.modules())
    assert torch.equal(model[9].weight.grad, torch.ones_like(model[9].weight))
    assert all(p.grad is None for n, p in model.named_parameters() if n != "9.weight")


def test_samples_fall_in_energy_and_conditional_ones_take_their_class():
    model = net("batch")
    noise = steep.sample(model, (50, 3, 8, 8), steps=0)  # the same seed: where the chains below begin
    walked = steep.sample(model, (50, 3, 8, 8), steps=40, rate=1.0)
    labels = torch.arange(50) % 5
    guided = steep.sample(model, (50, 3, 8, 8), labels=labels, steps=40, rate=1.0)
    with torch.no_grad():
        assert (steep.energy(model(walked)) < steep.energy(model(noise))).all()
        assert (steep.energy(model(guided), labels) < steep.energy(model(walked), labels)).all()


def test_same_seed_same_samples_and_another_seed_others():
    model = net("batch")
    a, b, c = (steep.sample(model, (4, 3, 8, 8), steps=3, seed=s) for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    with torch.inference_mode():
        assert torch.equal(steep.sample(model, (4, 3, 8, 8), steps=3), a)


def test_chains_can_continue_from_a_start():
    model = net("batch")
    start = torch.rand(4, 3, 8, 8)
    assert torch.equal(steep.sample(model, start.shape, start=start, steps=0), start)
    with pytest.raises(InputError, match=r"\(4, 3, 8, 8\), got \(2, 3, 8, 8\)"):
        steep.sample(model, (4, 3, 8, 8), start=start[:2])
    with pytest.raises(InputError, match=r"labels: expected a tensor of 4 integers, got torch\.float32"):
        steep.sample(model, (4, 3, 8, 8), labels=torch.zeros(4))
    with pytest.raises(InputError, match="integers, got list"):
        steep.sample(model, (4, 3, 8, 8), labels=[0, 1, 2, 3])


def test_buffer_hands_out_distinct_chains_takes_them_back_and_restarts_a_share():
    g = torch.Generator().manual_seed(0)
    like = torch.empty(1, 2, 3, 4)
    buffer = ReplayBuffer(50, start=(2.0, 3.0), restart=0.0)
    chains, where = buffer.draw(50, like, g)
    assert sorted(where.tolist()) == list(range(50))
    assert chains.min() >= 2.0
    assert chains.max() <= 3.0
    buffer.put(where, torch.full_like(chains, 9.0))
    assert (buffer.draw(50, like, g)[0] == 9.0).all()
    buffer = ReplayBuffer(2000, start=(0.0, 1.0), restart=0.25)
    buffer.draw(1, like, g)
    buffer.put(torch.arange(2000), torch.full((2000, 2, 3, 4), 9.0))
    fresh = (buffer.draw(2000, like, g)[0] != 9.0).all(dim=(1, 2, 3)).sum()
    assert 420 < fresh < 580  # 500 ± 4 standard deviations


def test_buffer_refuses_more_chains_than_it_holds_and_other_sizes():
    g = torch.Generator().manual_seed(0)
    buffer = ReplayBuffer(10)
    with pytest.raises(InputError, match="at most the buffer's 10, got 11"):
        buffer.draw(11, torch.empty(1, 3, 8, 8), g)
    buffer.draw(5, torch.empty(1, 3, 8, 8), g)
    with pytest.raises(InputError, match=r"expected \(3, 8, 8\).*got \(3, 4, 4\)"):
        buffer.draw(5, torch.empty(1, 3, 4, 4), g)


@pytest.mark.parametrize(("side", "chains"), [(32, 10_000), (64, 10_000), (224, 891)])
def test_a_buffer_without_a_size_is_the_published_one_or_what_memory_allows(side, chains):
    buffer, like = ReplayBuffer(None), torch.empty(1, 3, side, side, device="meta")
    assert buffer._size(200, like) == chains
    assert buffer._size(20_000, like) == 20_000


def test_chains_are_independent_of_the_batch_size():
    adapter = steep.adapt(net(), "tea", chains=7, buffer_size=16, sgld_steps=1)
    for batch in (20, 3):
        before = adapter.state_dict()["state"]["buffer"]["images"]
        adapter(torch.rand(batch, 3, 8, 8))
        after = adapter.state_dict()["state"]["buffer"]["images"]
        if before is not None:
            assert int((after != before).flatten(1).any(dim=1).sum()) == 7


@pytest.mark.parametrize(
    "wrong",
    [{"chains": 0}, {"sgld_steps": -1}, {"restart": 2.0}, {"start": (1.0, -1.0)}, {"buffer_size": 0}, {"lr": 0.0}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match=f"tea: {next(iter(wrong))}: expected"):
        steep.adapt(net(), "tea", **wrong)


def test_a_batch_larger_than_a_buffer_of_its_own_size_begins_some_chains_anew(monkeypatch):
    monkeypatch.setattr(ReplayBuffer, "PUBLISHED", 8)
    g, like = torch.Generator().manual_seed(0), torch.empty(1, 3, 4, 4)
    buffer = ReplayBuffer(None, restart=0.0)
    buffer.draw(5, like, g)
    kept = buffer.images.clone()
    chains, where = buffer.draw(20, like, g)
    assert sorted(where.tolist()) == list(range(8))
    assert torch.equal(chains[:8], kept[where])
    assert len(chains.unique(dim=0)) == 20
    buffer.put(where, chains + 10)
    assert torch.equal(buffer.images[where], chains[:8] + 10)
    adapter = steep.adapt(net(), "tea", sgld_steps=1, guard="raise")
    for size in (4, 30):
        assert adapter(torch.rand(size, 3, 8, 8)).isfinite().all()


def test_sampling_computes_no_parametrised_weight_of_a_model_in_training_and_lets_it_write_into_images():
    inner = nn.utils.parametrizations.spectral_norm(nn.Linear(48, 5))
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), inner).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert steep.sample(model, (2, 3, 4, 4), steps=2).isfinite().all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
