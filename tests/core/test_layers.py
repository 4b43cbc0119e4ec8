"""What adapts, and how BatchNorm treats small, single and constant batches."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

import steep
from nets import conv_net, images, net
from steep.core import layers
from steep.errors import InputError, NothingToAdaptError, UnknownNameError


class FusedNormAct(nn.BatchNorm2d):
    """In the manner of timm's BatchNormAct2d: normalises by its own call, then activates."""

    def forward(self, x):
        use_batch = self.training or self.running_mean is None
        stats = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        return F.relu(F.batch_norm(x, *stats, self.weight, self.bias, use_batch, self.momentum, self.eps))


class HomemadeRmsNorm(nn.Module):
    """Of no torch class, but named for what it does."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return x * self.weight.view(-1, 1, 1) / x.pow(2).mean(dim=1, keepdim=True).add(1e-6).sqrt()


class ChannelsLastRms(nn.RMSNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


KINDS = {
    "BatchNorm2d": nn.BatchNorm2d,
    "SyncBatchNorm": nn.SyncBatchNorm,
    "GroupNorm": lambda c: nn.GroupNorm(4, c),
    "InstanceNorm2d": lambda c: nn.InstanceNorm2d(c, affine=True),
    "LayerNorm": lambda c: nn.LayerNorm([c, 8, 8]),
    "RMSNorm": ChannelsLastRms,
    "fused": FusedNormAct,
    "homemade": HomemadeRmsNorm,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_norm_adapts_and_nothing_else(kind):
    model = conv_net(KINDS[kind])
    chosen = layers.select(model, "norm")
    assert chosen
    assert {name.split(".")[0] for name in chosen} == {"1", "5"}
    assert [n for n, p in model.named_parameters() if p.requires_grad] == list(chosen)
    adapter = steep.adapt(model, "tent", lr=0.1)
    before = {k: v.clone() for k, v in adapter.model.named_parameters()}
    assert torch.isfinite(adapter(images(20))).all()
    moved = {k for k, v in adapter.model.named_parameters() if not torch.equal(v, before[k])}
    assert moved
    assert moved <= set(chosen)


@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm1d, (20, 4)), (nn.BatchNorm3d, (20, 4, 2, 3, 3))])
def test_one_and_three_dimensional_batch_norm_use_the_batch(layer, shape):
    model = nn.Sequential(layer(4))
    layers.use_batch_statistics(model)
    y = model(torch.randn(shape) * 3 + 5).transpose(0, 1).flatten(1)
    torch.testing.assert_close(y.mean(dim=1), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(dim=1, correction=0), torch.ones(4), atol=1e-3, rtol=0)


def test_a_volume_model_adapts():
    model = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    assert steep.adapt(model, "tea", sgld_steps=1, buffer_size=32)(torch.rand(16, 1, 4, 5, 6)).shape == (16, 3)


def test_choices_of_parameters():
    model = net("batch")
    names = lambda params: set(layers.select(model, params))  # noqa: E731
    assert names("all") == {n for n, _ in model.named_parameters()}
    assert names(["linear"]) == {"9.weight", "9.bias"}
    assert names(["conv", "linear"]) == {"0.weight", "4.weight", "9.weight", "9.bias"}
    assert names("norm") == names(["norm"]) == {"1.weight", "1.bias", "5.weight", "5.bias"}
    assert names(r"^5\.") == {"5.weight", "5.bias"}


def test_nothing_to_adapt_lists_what_there_is():
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    plain(images(1))
    for method in ("tent", "tea", "sar", "eta", "shot"):
        with pytest.raises(NothingToAdaptError, match=r"2 Conv2d, 1 Linear.*params="):
            steep.adapt(plain, method)
    with pytest.raises(NothingToAdaptError, match="matches no parameter"):
        steep.adapt(net(), "tent", params="no such name")
    with pytest.raises(UnknownNameError, match="'convolution'"):
        steep.adapt(net(), "tent", params=["convolution"])
    for bad in ("", "["):
        with pytest.raises(InputError, match="a regular expression"):
            steep.adapt(net(), "tent", params=bad)


def test_batch_statistics_keep_the_running_ones():
    model = net("batch")
    layers.use_batch_statistics(model)
    before = {k: v.clone() for k, v in model.named_buffers()}
    for n in (1, 5, 16, 64):
        model(images(n))
    assert all(torch.equal(v, before[k]) for k, v in model.named_buffers())


@pytest.mark.parametrize("layer", [nn.BatchNorm2d, FusedNormAct])
@pytest.mark.parametrize("n", [1, 3, 15, 16, 40])
def test_small_batches_mix_source_statistics_by_size(layer, n):
    bn = layer(4).double()
    with torch.no_grad():
        for t, (low, high) in {
            "running_mean": (-1, 1),
            "running_var": (0.5, 2),
            "weight": (0.5, 2),
            "bias": (-1, 1),
        }.items():
            getattr(bn, t).uniform_(low, high)
    model = nn.Sequential(bn)
    x = torch.randn(n, 4, 5, 5, dtype=torch.float64) * 2 + 1
    w = min(1.0, n / 16)
    column = lambda t: t.view(1, -1, 1, 1)  # noqa: E731
    mean = w * x.mean(dim=(0, 2, 3)) + (1 - w) * bn.running_mean
    var = w * x.var(dim=(0, 2, 3), correction=0) + (1 - w) * bn.running_var
    expected = (x - column(mean)) / column(var + bn.eps).sqrt() * column(bn.weight) + column(bn.bias)
    expected = expected.relu() if layer is FusedNormAct else expected
    layers.use_batch_statistics(model)
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("method", ["bn", "tent", "tea", "shot", "sar"])
def test_one_image_with_one_value_per_channel_and_constant_images(method):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 8), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 4)
    )
    hyper = {"sgld_steps": 2, "buffer_size": 32} if method == "tea" else {}
    adapter = steep.adapt(model, method, **hyper)
    for x in (images(1), torch.zeros(1, 3, 8, 8), torch.full((20, 3, 8, 8), 0.5), images(20)):
        assert torch.isfinite(adapter(x)).all()
    assert all(torch.isfinite(p).all() for p in adapter.model.parameters())


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def test_parametrised_layers_adapt_by_what_they_are_made_from():
    model = net()
    plain = layers.select(net(), "norm")
    for layer in layers.batch_norms(model):
        parametrize.register_parametrization(layer, "weight", Halved())
    chosen = layers.select(model, "norm")
    assert len(chosen) == len(plain) == 4
    assert "1.parametrizations.weight.original" in chosen
    assert all(dict(model.named_parameters())[name] is parameter for name, parameter in chosen.items())
    adapter = steep.adapt(model, "tent")
    adapter(images())
    made = adapter.model[1].parametrizations.weight.original
    assert not torch.equal(made, model[1].parametrizations.weight.original)

    weighted = net()
    nn.utils.parametrizations.weight_norm(weighted[0])
    assert {"0.parametrizations.weight.original0", "0.parametrizations.weight.original1", "4.weight"} == set(
        layers.select(weighted, "conv")
    )


@pytest.mark.parametrize("size", [32, 4])
@pytest.mark.parametrize("running", [True, False])
def test_a_synchronised_layer_follows_its_own_stream_inside_a_process_group(size, running, tmp_path):
    """Beside other ranks it would mix streams that have nothing to do with each other; a group of one shows it asks."""
    model = net()
    if not running:
        for layer in layers.batch_norms(model):
            layer.running_mean = layer.running_var = layer.num_batches_tracked = None
            layer.track_running_stats = False
    x = images(size)
    expected = steep.adapt(model, "tent")
    wanted = [expected(x), expected(x)]
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        adapter = steep.adapt(synchronised, "tent")
        answers = [adapter(x), adapter(x)]
    finally:
        dist.destroy_process_group()
    for answer, other in zip(answers, wanted, strict=True):
        torch.testing.assert_close(answer, other, rtol=1e-4, atol=1e-4)
