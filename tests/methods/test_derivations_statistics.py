"""Source, BN, alpha-BN and DUA: which statistics normalise an image, and how they move. Nothing here has a gradient."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import steep
from reference import EPS, FULL_BATCH, Hand, assert_close, assert_params, make_images, make_net
from steep.core import layers
from steep.methods.dua import Dua

STREAM = [make_images(seed) for seed in range(3)]


# Source --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 20])
def test_source_is_the_model_in_eval_mode(n):
    """f(x) with running statistics, even if the caller's model was left in training mode; nothing changes."""
    net = make_net()
    adapter = steep.adapt(copy.deepcopy(net).train(), "source")
    for x in STREAM:
        assert_close(adapter(x[:n]), Hand(net, "source").logits(x[:n]), 1e-12)
        assert_close(adapter(x[:n]), net(x[:n]).detach().numpy(), 0.0)
    assert_params(adapter.model, Hand(net), ())


# BN ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 17, 20])
def test_bn_normalises_by_the_batch(n):
    """(x − mean) / sqrt(biased variance + ε), both over (B, H, W); running statistics and parameters stay."""
    net = make_net()
    adapter = steep.adapt(net, "bn")
    for x in STREAM:
        assert_close(adapter(x[:n] if n < 20 else x), Hand(net, "train").logits(x[:n]), 1e-12)
    assert_params(adapter.model, Hand(net), ())
    assert adapter.model.bn1.num_batches_tracked == 0


@pytest.mark.parametrize("n", [1, 2, 8, 15])
def test_bn_mixes_small_batches_with_the_source(n):
    """w · batch + (1 − w) · source for mean and variance, w = n/16."""
    assert layers.FULL_BATCH == FULL_BATCH
    net = make_net()
    adapter = steep.adapt(net, "bn")
    for x in STREAM:
        logits = adapter(x[:n])
        assert_close(logits, Hand(net, "batch").logits(x[:n]), 1e-12)
        for other in ("source", "train"):
            assert np.abs(logits.numpy() - Hand(net, other).logits(x[:n])).max() > 1e-3
    assert_close(adapter(STREAM[0]), Hand(net, "train").logits(STREAM[0]), 1e-12)  # and goes back to batches alone
    assert_params(adapter.model, Hand(net), ())


@pytest.mark.parametrize("n", [1, 3, 16])
def test_bn_survives_one_value_per_channel(n):
    """1 × 1 feature maps of equal images: batch variance 0. The mixture by hand, and no NaN."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 5)).double().eval()
    bn, linear = net[0], net[2]
    bn.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    bn.running_var.copy_(torch.tensor([0.5, 1.5, 0.25]))
    with torch.no_grad():
        bn.weight.copy_(torch.tensor([1.1, 0.9, -0.7]))
        bn.bias.copy_(torch.tensor([0.0, 0.2, -0.1]))
    image = np.array([0.4, 0.0, 0.9])
    w = n / 16
    mean = w * image + (1 - w) * bn.running_mean.numpy()
    var = (1 - w) * bn.running_var.numpy()
    normal = (image - mean) / np.sqrt(var + EPS) * bn.weight.detach().numpy() + bn.bias.detach().numpy()
    expected = linear.weight.detach().numpy() @ normal + linear.bias.detach().numpy()
    logits = steep.adapt(net, "bn")(torch.tensor(image).view(1, 3, 1, 1).repeat(n, 1, 1, 1))
    assert_close(logits, np.tile(expected, (n, 1)), 1e-9)


def test_constant_features_stay_finite_in_every_method():
    """Black images, one and many: constant features, zero variance, yet finite logits."""
    for name in steep.METHODS:
        source = [STREAM[0]] if name == "eata" else None
        hyper = {"sgld_steps": 2, "buffer_size": 20} if name == "tea" else {}
        adapter = steep.adapt(make_net(), name, source=source, **hyper)
        for n in (1, 20):
            logits = adapter(torch.zeros(n, 3, 6, 6, dtype=torch.float64))
            assert torch.isfinite(logits).all(), name
        assert all(torch.isfinite(p).all() for p in adapter.model.parameters()), name


# Alpha-BN ------------------------------------------------------------------------------------------------------------


class HandMixed(Hand):
    """SmallNet whose layers normalise by (1 − w) · running + w · (mean, unbiased variance) of the batch."""

    def __init__(self, net: nn.Module, weight) -> None:
        super().__init__(net)
        self.weight, self.mixed = weight, {}

    def _moments(self, name, x):
        n = x[:, 0].size
        w = self.weight(len(x))
        var = x.var(axis=(0, 2, 3)) * (n / (n - 1))
        running = self.running[f"{name}.running_mean"], self.running[f"{name}.running_var"]
        self.mixed[name] = [
            (1 - w) * old + w * new for old, new in zip(running, (x.mean(axis=(0, 2, 3)), var), strict=True)
        ]
        return *self.mixed[name], None, w

    def move(self) -> None:
        for name, (mean, var) in self.mixed.items():
            self.running |= {f"{name}.running_mean": mean, f"{name}.running_var": var}


WEIGHTS = {
    "published": ({}, lambda n: 0.1),
    "alpha": ({"alpha": 0.6}, lambda n: 0.6),
    "batch alone": ({"alpha": 1.0}, lambda n: 1.0),
    "by batch size": ({"prior": 16}, lambda n: n / (n + 16)),
}


@pytest.mark.parametrize("average", ["batch", "stream"])
@pytest.mark.parametrize("case", WEIGHTS)
@pytest.mark.parametrize("n", [1, 7, 20])
def test_alpha_bn_mixes_source_and_batch(case, n, average):
    """μ = (1 − α) μ_source + α mean, σ² alike and unbiased; over a stream each mixture takes the source's place."""
    hyper, weight = WEIGHTS[case]
    net = make_net()
    adapter, hand = steep.adapt(net, "alpha-bn", average=average, **hyper), HandMixed(net, weight)
    for x in STREAM:
        assert_close(adapter(x[:n]), hand.logits(x[:n]))
        if average == "stream":
            hand.move()
        assert_statistics(adapter.model, hand)
    for name, p in net.named_parameters():
        assert torch.equal(p, adapter.model.get_parameter(name))


def test_alpha_bn_is_the_source_at_0_and_keeps_one_value_a_channel_finite():
    net = make_net()
    assert_close(steep.adapt(net, "alpha-bn", alpha=0.0)(STREAM[0]), Hand(net, "source").logits(STREAM[0]), 1e-12)
    one = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 5)).double().eval()
    x = torch.tensor([0.4, 0.0, 0.9], dtype=torch.float64).view(1, 3, 1, 1)
    spread = (x - 0.1 * x) / np.sqrt(0.9 * 1 + 0.1 * 0 + EPS)  # running mean 0 and variance 1
    expected = one[2](spread.flatten(1)).detach().numpy()
    assert_close(steep.adapt(one, "alpha-bn")(x), expected, 1e-12)


@pytest.mark.parametrize("average", ["batch", "stream"])
def test_alpha_bn_merged_answers_as_it_did(average):
    """An ordinary module with the statistics that the adapter would normalise these images by."""
    adapter = steep.adapt(make_net(), "alpha-bn", average=average)
    for x in STREAM:
        adapter(x)
    assert_close(adapter.merged(STREAM[0])(STREAM[0]).numpy(), adapter(STREAM[0]).numpy(), 1e-10)


def test_alpha_bn_says_what_moves():
    assert [steep.methods.make("alpha-bn", average=average).moves for average in ("batch", "stream")] == [False, True]


# DUA -----------------------------------------------------------------------------------------------------------------


class HandDua:
    """Mirza et al. 2022: for image k, running ← (1 − m) running + m · statistics of its copies, m = ρ_k + 0.005."""

    def __init__(self, net: nn.Module, seed: int = 0, **hyper) -> None:
        self.hand, self.rho, self.seen = Hand(net, "train"), 0.1, 0
        self.method, self.generator = Dua(**hyper), torch.Generator().manual_seed(seed)

    def learn(self, image) -> None:
        if self.seen == 80:
            return
        self.seen += 1
        self.rho *= 0.94
        m = self.rho + 0.005
        copies = self.method.augment(image, self.generator)
        self.hand.logits(copies)
        for name, (mean, var) in self.hand.seen.items():
            values = copies.shape[0] * (36 if name == "bn1" else 16)  # B · H · W in front of each layer
            unbiased = var * values / (values - 1)
            for key, new in (("running_mean", mean), ("running_var", unbiased)):
                self.hand.running[f"{name}.{key}"] = (1 - m) * self.hand.running[f"{name}.{key}"] + m * new

    def answer(self, x) -> np.ndarray:
        self.hand.statistics = "source"
        logits = self.hand.logits(x)
        self.hand.statistics = "train"
        return logits


def assert_statistics(model: nn.Module, hand: Hand) -> None:
    for name, expected in hand.running.items():
        np.testing.assert_allclose(model.get_buffer(name).numpy(), expected, rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("hyper", [{}, {"copies": 5}], ids=["64 copies", "5 copies"])
def test_dua_moves_the_running_statistics_image_by_image(hyper):
    """ρ_k = 0.94 ρ_{k−1}, ρ_0 = 0.1: momentum 0.099, 0.09336, …; unbiased variance; prediction after all images."""
    net = make_net()
    adapter, hand = steep.adapt(net, "dua", seed=3, **hyper), HandDua(net, seed=3, **hyper)
    for x in (STREAM[0][:1], STREAM[1][:4], STREAM[2][:3]):
        before = hand.answer(x)
        logits = adapter(x)
        for image in x:
            hand.learn(image)
        assert np.abs(before - hand.answer(x)).max() > 1e-3
        assert_close(logits, hand.answer(x))
        assert_statistics(adapter.model, hand.hand)
        assert adapter.last.used == len(x)
    for name, p in net.named_parameters():
        assert torch.equal(p, adapter.model.get_parameter(name))


def test_dua_predicts_before_on_request():
    net = make_net()
    adapter = steep.adapt(net, "dua", predict="before", copies=4)
    assert_close(adapter(STREAM[0]), Hand(net, "source").logits(STREAM[0]))


def test_dua_is_frozen_after_80_images():
    """Batches of 50: images 81 to 100 and all later ones change nothing."""
    net, stream = make_net(), [make_images(10 + i, 50) for i in range(3)]
    adapter, hand = steep.adapt(net, "dua"), HandDua(net)
    for x, used in zip(stream, (50, 30, 0), strict=True):
        logits = adapter(x)
        for image in x:
            hand.learn(image)
        assert_close(logits, hand.answer(x))
        assert_statistics(adapter.model, hand.hand)
        assert adapter.last.used == used
    assert hand.rho == pytest.approx(0.1 * 0.94**80)


def views(image: np.ndarray, margins: tuple[int, int], turns: tuple[int, ...]) -> dict[tuple[int, ...], np.ndarray]:
    """Every zero-padded shift × mirror × turn of an image, by (dy, dx, mirrored, quarter turns)."""
    height, width = image.shape[1:]
    result = {}
    for dy, dx in itertools.product(*[range(-m, m + 1) for m in margins]):
        shifted = np.zeros_like(image)
        for y, x in itertools.product(range(height), range(width)):
            if 0 <= y + dy < height and 0 <= x + dx < width:
                shifted[:, y, x] = image[:, y + dy, x + dx]
        for mirrored, turn in itertools.product((0, 1), turns):
            view = shifted[:, :, ::-1] if mirrored else shifted
            result[dy, dx, mirrored, turn] = np.rot90(view, turn, axes=(1, 2))
    return result


@pytest.mark.parametrize(("shape", "margins", "turns"), [((8, 8), (1, 1), (0, 1, 2, 3)), ((8, 16), (1, 2), (0, 2))])
def test_dua_copies_are_shifts_mirrors_and_turns(shape, margins, turns):
    """Each copy is one of the views of its image, up to 1/8 of the side; every view comes up, about equally often."""
    image = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    copies = Dua(copies=6000).augment(image, torch.Generator().manual_seed(1)).numpy()
    assert copies.shape == (6000, 3, *shape)
    allowed = {view.tobytes(): 0 for view in views(image.numpy(), margins, turns).values()}
    assert len(allowed) == (2 * margins[0] + 1) * (2 * margins[1] + 1) * 2 * len(turns)
    for copy_ in copies:
        allowed[copy_.tobytes()] += 1  # a KeyError is a copy that is no such view
    expected = len(copies) / len(allowed)
    assert max(abs(n - expected) for n in allowed.values()) < 5 * np.sqrt(expected)
