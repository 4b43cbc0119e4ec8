"""bfloat16: what is held in it, what is not, and that the answers stay close."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import steep
from nets import images, net
from steep.core.run import precision as precision_module
from steep.core.run.precision import _pays_on_this_cpu
from steep.errors import InputError

QUICK = {"tea": {"sgld_steps": 2, "buffer_size": 64}, "dua": {"images": 20, "copies": 4}}


@pytest.mark.parametrize("kind", ["batch", "group", "layer"])
@pytest.mark.parametrize("method", ["source", "tent", "tea", "sar", "pl"])
def test_answers_are_close_to_float32_and_only_frozen_weights_are_lowered(method, kind):
    model = net(kind)
    before = copy.deepcopy(model.state_dict())
    hyper = QUICK.get(method, {})
    exact, fast = (steep.adapt(model, method, precision=p, **hyper) for p in ("float32", "bfloat16"))
    for seed in range(3):
        a, b = exact(images(seed=seed)), fast(images(seed=seed))
        assert b.dtype == torch.float32
        assert (a - b).norm() < 0.03 * a.norm()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    norms = (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
    for module in fast.model.modules():
        for p in module.parameters(recurse=False):
            lowered = not isinstance(module, norms) and method != "pl"  # pl adapts everything
            assert p.dtype == (torch.bfloat16 if lowered else torch.float32)


def test_replays_resumes_and_knows_its_source_in_either_precision():
    make = lambda p: steep.adapt(net(), "tea", precision=p, **QUICK["tea"])  # noqa: E731
    adapter = make("bfloat16")
    first = [adapter(images(seed=s)) for s in range(4)]
    adapter.reset()
    for s in range(2):
        adapter(images(seed=s))
    file = io.BytesIO()
    torch.save(adapter.state_dict(), file)
    file.seek(0)
    other = make("bfloat16")
    other.load_state_dict(torch.load(file, weights_only=True))
    assert all(torch.equal(other(images(seed=s)), first[s]) for s in (2, 3))
    assert make("float32").state_dict()["source"] == adapter.state_dict()["source"]


def test_a_source_with_convolutions_of_one_pixel_is_known_in_either_precision():
    model = steep.models.build("wrn-10-1", 10)  # torch calls these weights contiguous in either memory format
    one, other = (steep.adapt(model, "tent", precision=p).state_dict()["source"] for p in ("float32", "bfloat16"))
    assert one == other


def test_auto_leaves_a_double_model_alone_and_other_words_are_refused():
    adapter = steep.adapt(net().double(), "tent", precision="auto")
    assert adapter(images()).dtype == torch.float64
    assert torch.isfinite(steep.adapt(net(), "tent", precision="auto")(images())).all()
    with pytest.raises(InputError, match="precision"):
        steep.adapt(net(), "tent", precision="half")


def test_choosing_a_precision_draws_nothing_from_the_callers_random_stream(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)  # measured on any processor
    _pays_on_this_cpu.cache_clear()  # and not only by the first test that asks
    before = torch.get_rng_state()
    steep.adapt(net(), "tent", precision="auto")
    assert _pays_on_this_cpu.cache_info().misses == 1
    assert torch.equal(torch.get_rng_state(), before)
    _pays_on_this_cpu.cache_clear()  # what was measured here is not this processor's answer


def test_other_work_on_the_machine_does_not_decide(monkeypatch):
    """One thread is measured: of several one may wait for a processor, and all wait for it."""
    threads, before = [], torch.get_num_threads()

    def convolve(*_, **__):
        threads.append(torch.get_num_threads())

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(precision_module, "conv2d", convolve)
    torch.set_num_threads(2)
    try:
        _pays_on_this_cpu.__wrapped__()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(threads) == {1}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_group_norm_survives_channels_last_images_on_a_cpu(precision):
    model = net("group").to(memory_format=torch.channels_last)
    adapter = steep.adapt(model, "tent", precision=precision)
    x = images().contiguous(memory_format=torch.channels_last)
    assert torch.isfinite(adapter(x)).all()  # torch's own backward would end the process here
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_group_norm_survives_features_that_are_channels_last_inside_the_model():
    class Twisted(torch.nn.Module):
        def forward(self, x):
            return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)

    model = net("group")
    model.insert(1, Twisted())
    assert torch.isfinite(steep.adapt(model, "tent")(images())).all()
