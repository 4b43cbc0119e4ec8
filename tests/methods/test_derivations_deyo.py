"""DeYO: each step equals the paper's formulas, worked out by hand in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import steep
from reference import (
    Adam,
    Hand,
    Momentum,
    assert_close,
    assert_params,
    at_rest,
    entropy,
    entropy_slope,
    make_images,
    make_net,
    only,
    softmax,
)
from steep.core.augment import shuffled
from steep.errors import InputError

STREAM = [make_images(seed, side=8) for seed in range(5)]


def by_hand(images: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Patch k of the result is patch order[k] of the image, counted row by row; 4 × 4 patches."""
    result = np.empty_like(images)
    h, w = images.shape[2] // 4, images.shape[3] // 4
    for i in range(len(images)):
        for k in range(16):
            row, column = divmod(k, 4)
            from_row, from_column = divmod(int(order[i, k]), 4)
            source = images[i, :, from_row * h : (from_row + 1) * h, from_column * w : (from_column + 1) * w]
            result[i, :, row * h : (row + 1) * h, column * w : (column + 1) * w] = source
    return result


class HandDeyo:
    """Lee et al. 2024, equations 8 to 10: entropy below E, a drop of the label's probability, two weights."""

    loss_of, slope_of = staticmethod(entropy), staticmethod(entropy_slope)  # what is minimised

    def __init__(self, net, optimizer, *, margin=0.5, e0=0.4, drop=0.2, seed=0) -> None:
        self.hand, self.optimizer, self.drop = Hand(net), optimizer, drop
        self.classes = net.fc.out_features
        self.margin, self.e0 = margin * math.log(self.classes), e0 * math.log(self.classes)
        self.generator = torch.Generator().manual_seed(seed)

    def update(self, x) -> tuple[int, int, float]:
        """One step; images below E, those that both filters leave, and the loss."""
        z = self.hand.logits(x)
        order = torch.rand(len(x), 16, generator=self.generator).argsort(dim=1).numpy()
        p, q = softmax(z), softmax(self.hand.logits(by_hand(x.numpy(), order)))
        label = p.argmax(axis=1)
        rows = np.arange(len(x))
        difference = p[rows, label] - q[rows, label]
        reliable = entropy(z) < self.margin
        chosen = reliable & (difference > self.drop)
        if not chosen.any():
            return int(reliable.sum()), 0, 0.0
        weight = 1 / np.exp(entropy(z) - self.e0) + 1 / np.exp(-difference)
        weight = np.where(chosen, weight, 0) / chosen.sum()
        grads, _ = self.hand.backward(x, weight[:, None] * self.slope_of(z))
        self.optimizer.step(self.hand.params, only(grads))
        return int(reliable.sum()), int(chosen.sum()), float((weight * self.loss_of(z)).sum())


@pytest.mark.parametrize(
    ("hyper", "optimizer", "settings"),
    [
        ({}, Momentum(2.5e-4), {}),
        ({"lr": 0.02, "drop": 0.02}, Momentum(0.02), {"drop": 0.02}),
        ({"setting": "tuned", "margin": 0.3, "weight_margin": 0.7}, Adam(1e-3), {"margin": 0.3, "e0": 0.7}),
    ],
    ids=["published", "other drop", "tuned"],
)
def test_deyo_step_by_step(hyper, optimizer, settings):
    """L = mean over the chosen of (e^(E0 − H) + e^d) H, the weights without gradient; SGD with momentum or Adam."""
    net = make_net(sharpness=6.0)
    adapter, hand = steep.adapt(net, "deyo", seed=3, **hyper), HandDeyo(net, optimizer, seed=3, **settings)
    done = []
    for x in STREAM:
        assert_close(adapter(x), hand.hand.logits(x))
        done.append(hand.update(x))
        assert_params(adapter.model, hand.hand)
        assert adapter.last.used == done[-1][1]
        if adapter.last.used:
            assert_close(adapter.last.loss, done[-1][2])
    assert any(0 < chosen < reliable < 20 for reliable, chosen, _ in done)  # both filters do something


@pytest.mark.parametrize("hyper", [{"margin": 0.0}, {"drop": 1.0}])
def test_deyo_without_a_chosen_image_stands_still(hyper):
    net = make_net()
    adapter = steep.adapt(net, "deyo", **hyper)
    adapter(STREAM[0])
    assert (adapter.last.used, adapter.last.loss) == (0, None)
    assert adapter.last.skipped
    assert_params(adapter.model, Hand(net), ())
    assert at_rest(adapter.state_dict()["state"])


def test_images_that_the_entropy_filter_leaves_out_still_count_in_the_shuffled_batch_s_statistics():
    """The published code shuffles the reliable images alone, so that BatchNorm sees another batch."""
    net, x = make_net(sharpness=6.0), STREAM[0]
    adapter, hand = steep.adapt(net, "deyo"), HandDeyo(net, Momentum(2.5e-4))
    adapter(x)
    order = torch.rand(len(x), 16, generator=torch.Generator().manual_seed(0)).argsort(dim=1).numpy()
    z, mixed = hand.hand.logits(x), by_hand(x.numpy(), order)
    reliable = entropy(z) < hand.margin
    apart = np.abs(hand.hand.logits(mixed)[reliable] - hand.hand.logits(mixed[reliable])).max()
    assert apart > 1e-3
    assert adapter.last.used == hand.update(x)[1]


@pytest.mark.parametrize(("height", "width"), [(8, 8), (8, 12), (4, 20)])
def test_patches_change_places_and_nothing_else(height, width):
    x = torch.rand(50, 3, height, width, generator=torch.Generator().manual_seed(1))
    order = torch.rand(50, 16, generator=torch.Generator().manual_seed(2)).argsort(dim=1).numpy()
    mixed = shuffled(x, 4, torch.Generator().manual_seed(2))
    assert np.array_equal(mixed.numpy(), by_hand(x.numpy(), order))
    assert len({tuple(row) for row in order.tolist()}) == 50  # each image in an order of its own


def test_sides_that_do_not_divide_and_images_smaller_than_the_grid():
    x = torch.rand(6, 3, 9, 14)
    mixed = shuffled(x, 4, torch.Generator().manual_seed(0))
    assert mixed.shape == x.shape
    assert torch.isfinite(mixed).all()
    assert not torch.allclose(mixed, x, atol=0.1)
    tiny = torch.rand(2, 1, 3, 2)
    parts = shuffled(tiny, 4, torch.Generator().manual_seed(0))  # shrunk to 2 × 2, shuffled, stretched to 3 × 2
    assert parts.shape == tiny.shape
    with pytest.raises(InputError, match=r"\(B, C, H, W\)"):
        shuffled(torch.rand(2, 1, 4, 4, 4), 4, torch.Generator())
