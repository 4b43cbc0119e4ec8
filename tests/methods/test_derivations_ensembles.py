"""ROID, CMF and RDumb: loss, weights, filter, correction and returns equal the papers' formulas, by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import steep
from reference import (
    NORM,
    Adam,
    Hand,
    Momentum,
    assert_close,
    assert_params,
    at_rest,
    entropy,
    make_images,
    make_net,
    only,
    softmax,
)
from steep.core.augment import view
from test_derivations_entropy import HandEta

LR = 0.02
STREAM = [make_images(seed, 24) for seed in range(5)]


def through_softmax(z: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """From ∂L/∂p to ∂L/∂z = p (g − Σ g p)."""
    p = softmax(z)
    return p * (slope - (slope * p).sum(axis=1, keepdims=True))


def likelihood_ratio(z: np.ndarray) -> np.ndarray:
    q = np.minimum(softmax(z), 0.99)
    return -(q * np.log(q / (1 - q) + 1e-5)).sum(axis=1)


def likelihood_ratio_slope(z: np.ndarray) -> np.ndarray:
    """∂/∂q of −q log(r + ε), r = q / (1 − q), is −log(r + ε) − q / (1 − q)² / (r + ε); none where p is cut."""
    p = softmax(z)
    q = np.minimum(p, 0.99)
    r = q / (1 - q) + 1e-5
    return through_softmax(z, np.where(p > 0.99, 0, -np.log(r) - q / (1 - q) ** 2 / r))


def two_way(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -0.5 * (softmax(b) * np.log(softmax(a)) + softmax(a) * np.log(softmax(b))).sum(axis=1)


def two_way_slope(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By a: ½ (p_a − p_b) from the one half, −½ log p_b through the softmax from the other."""
    return 0.5 * (softmax(a) - softmax(b)) + 0.5 * through_softmax(a, -np.log(softmax(b)))


def stretched(v: np.ndarray) -> np.ndarray:
    return (v - v.min()) / (v.max() - v.min())


def corrected(z: np.ndarray) -> np.ndarray:
    """K · smoothed prior · logits, smooth = max(1/B, 1/K) / max prior."""
    classes = z.shape[1]
    prior = softmax(z).mean(axis=0)
    smooth = max(1 / len(z), 1 / classes) / prior.max()
    return z * classes * (prior + smooth) / (1 + smooth * classes)


class HandRoid:
    """Marsden et al. 2024; its published code, but for the views of images that weigh nothing, which are seen too."""

    def __init__(self, net, seed: int = 0, mirror: bool = True) -> None:
        self.hand, self.optimizer = Hand(net), Adam(LR)
        self.origin = {name: self.hand.params[name].copy() for name in NORM}
        self.generator, self.mirror = torch.Generator().manual_seed(seed), mirror
        self.mean = np.full(5, 0.2)

    def weights(self, z: np.ndarray) -> np.ndarray:
        p = softmax(z)
        cosine = p @ self.mean / np.linalg.norm(p, axis=1) / np.linalg.norm(self.mean)
        diverse = stretched(1 - cosine)
        return np.where(diverse < diverse.mean(), 0, np.exp(diverse * stretched(-entropy(z)) * 3))

    def update(self, x) -> tuple[float, int]:
        views = view(x, self.generator, edge="reflection", mirror=self.mirror)
        z, zv = self.hand.logits(x), self.hand.logits(views)
        w = self.weights(z)
        loss = (w * (likelihood_ratio(z) + two_way(zv, z))).mean()
        share = w[:, None] / len(x)
        of_images, _ = self.hand.backward(x, share * (likelihood_ratio_slope(z) + two_way_slope(z, zv)))
        of_views, _ = self.hand.backward(views, share * two_way_slope(zv, z))
        self.optimizer.step(self.hand.params, {name: of_images[name] + of_views[name] for name in NORM})
        self.mean = 0.9 * self.mean + 0.1 * softmax(z).mean(axis=0)
        self.ensemble()
        return loss, int((w > 0).sum())

    def ensemble(self) -> None:
        for name, source in self.origin.items():
            self.hand.params[name] = 0.99 * self.hand.params[name] + 0.01 * source


class HandCmf(HandRoid):
    """Lee & Chang 2024: predict, correct, average; q in proportion to the number of adapted parameters."""

    def __init__(self, net, noise: float) -> None:
        super().__init__(net)
        self.hidden, self.variance = dict(self.origin), 0.0
        self.q = noise * sum(v.size for v in self.origin.values()) / 38400
        self.gains: list[float] = []

    def ensemble(self) -> None:
        predicted = {name: 0.99 * self.hidden[name] + 0.01 * self.origin[name] for name in NORM}
        self.variance = 0.99**2 * self.variance + self.q
        gain = (1 - self.q) / (self.variance + 1 - self.q)
        gain = 1.0 if gain >= 0.9999 else max(gain, 0.89)
        self.variance *= gain
        self.gains.append(gain)
        for name in NORM:
            self.hidden[name] = gain * predicted[name] + (1 - gain) * self.hand.params[name]
            self.hand.params[name] = 0.99 * self.hand.params[name] + 0.01 * self.hidden[name]


def test_the_slopes_are_central_differences():
    rng, h = np.random.default_rng(0), 1e-6
    z, other = 4 * rng.normal(size=(6, 5)), 2 * rng.normal(size=(6, 5))
    z[0, 2] += 9
    pairs = [
        (likelihood_ratio, likelihood_ratio_slope),
        (lambda a: two_way(a, other), lambda a: two_way_slope(a, other)),
    ]
    assert (softmax(z) > 0.99).any()
    for value, slope in pairs:
        for k in range(5):
            step = h * np.eye(5)[k]
            numeric = (value(z + step) - value(z - step)) / (2 * h)
            np.testing.assert_allclose(slope(z)[:, k], numeric, atol=1e-7)


@pytest.mark.parametrize("mirror", [True, False])
def test_roid_follows_the_formulas(mirror):
    net = make_net()
    adapter, hand = steep.adapt(net, "roid", lr=LR, seed=3, mirror=mirror), HandRoid(net, 3, mirror)
    for x in STREAM:
        assert_close(adapter(x), corrected(hand.hand.logits(x)))
        loss, used = hand.update(x)
        assert_params(adapter.model, hand.hand)
        assert_close(adapter.last.loss, loss)
        assert adapter.last.used == used
        assert 0 < used < 24
        assert_close(adapter.state_dict()["state"]["mean_prediction"], hand.mean)
    assert not np.allclose(hand.mean, 0.2, atol=0.01)


class Nesterov(Momentum):
    """SGD that looks ahead along its momentum: v ← 0.9 v + g, θ ← θ − lr (g + 0.9 v)."""

    def step(self, params, grads) -> None:
        for name, g in grads.items():
            self.v[name] = 0.9 * self.v.get(name, 0.0) + g
            params[name] = params[name] - self.lr * (g + 0.9 * self.v[name])


@pytest.mark.parametrize("method", ["roid", "cmf"])
def test_sgd_is_nesterov_s(method):
    """The published settings for ImageNet name SGD, and those of all data sets give it Nesterov's momentum."""
    net = make_net()
    adapter = steep.adapt(net, method, lr=LR, optimizer="sgd")
    hand = HandRoid(net) if method == "roid" else HandCmf(net, 0.005)
    hand.optimizer = Nesterov(LR)
    for x in [*STREAM, STREAM[0][:17]]:  # the last batch is smaller
        assert_close(adapter(x), corrected(hand.hand.logits(x)))
        assert_close(adapter.last.loss, hand.update(x)[0])
        assert_params(adapter.model, hand.hand)


def test_roid_after_is_the_corrected_answer_of_the_new_weights():
    net = make_net()
    adapter, hand = steep.adapt(net, "roid", lr=LR, predict="after"), HandRoid(net)
    hand.update(STREAM[0])
    assert_close(adapter(STREAM[0]), corrected(hand.hand.logits(STREAM[0])))


def test_roid_correction_changes_no_answer_where_classes_are_even():
    """The published code multiplies by the prior alone, about 1/K: the same classes win, at logits K times smaller."""
    z = torch.tensor(np.random.default_rng(0).normal(size=(5, 5)))
    rows = torch.stack([row.roll(k) for row in z for k in range(5)])  # each class as often as any other
    assert_close(steep.core.batch.prior_corrected(rows), rows.numpy())
    odd = 3 * torch.tensor(np.random.default_rng(1).normal(size=(40, 5))) + torch.tensor([2.0, 0, 0, 0, 0])
    answer = steep.core.batch.prior_corrected(odd).numpy()
    assert_close(answer, corrected(odd.numpy()))
    assert np.array_equal(answer.argmax(axis=1), (answer / 5).argmax(axis=1))


def test_roid_takes_equal_images_as_equally_important():
    """Nothing to tell them apart by: all weigh exp(0) = 1. The published code divides 0 by 0."""
    adapter = steep.adapt(make_net(), "roid", lr=LR)
    x = STREAM[0][:1]
    z = Hand(make_net()).logits(x)
    views = view(x, torch.Generator().manual_seed(0), edge="reflection", mirror=True)
    adapter(x)
    loss = likelihood_ratio(z) + two_way(Hand(make_net()).logits(views), z)
    assert_close(adapter.last.loss, loss[0])
    assert adapter.last.used == 1


@pytest.mark.parametrize("noise", [0.005, 40.0, 400.0, 4000.0])
def test_cmf_follows_the_filter(noise):
    """Gains of 1, between the limits, and at the lower one; from q = 1 on it is always the lower one."""
    net = make_net()
    hyper = {} if noise == 0.005 else {"noise": noise}  # 0.005 is the default
    adapter, hand = steep.adapt(net, "cmf", lr=LR, **hyper), HandCmf(net, noise)
    for x in STREAM:
        assert_close(adapter(x), corrected(hand.hand.logits(x)))
        hand.update(x)
        assert_params(adapter.model, hand.hand)
        state = adapter.state_dict()["state"]
        assert_close(state["variance"], hand.variance)
        for name, hidden in zip(NORM, state["hidden"], strict=True):
            assert_close(hidden, hand.hidden[name])
    expected = {0.005: hand.gains[0] == 1.0, 40.0: 0.89 < hand.gains[-1] < 1, 400.0: 0.89 in hand.gains}
    assert expected.get(noise, set(hand.gains) == {0.89})


def test_cmf_reset_forgets_how_uncertain_it_was():
    """The published code keeps the variance."""
    adapter = steep.adapt(make_net(), "cmf", noise=400.0)
    adapter(STREAM[0])
    assert adapter.state_dict()["state"]["variance"] > 0
    adapter.reset()
    assert adapter.state_dict()["state"]["variance"] == 0


class HandRDumb(HandEta):
    """Press et al. 2023: ETA with SGD that begins anew after every so many steps, whether they moved or not."""

    def __init__(self, net, every: int, **hyper) -> None:
        super().__init__(net, **hyper)
        self.every, self.steps, self.optimizer = every, 0, Momentum(LR)

    def update(self, x) -> np.ndarray:
        self.steps += 1
        return super().update(x)

    def return_if_due(self) -> bool:
        due = self.steps > 0 and self.steps % self.every == 0
        if due:
            self.hand.params, self.optimizer, self.mean = dict(self.origin), Momentum(LR), None
        return due


def test_rdumb_is_eta_that_returns_to_the_source():
    net = make_net()
    adapter = steep.adapt(net, "rdumb", lr=LR, every=3, margin_classes=None, margin=0.8, novelty=0.9)
    hand = HandRDumb(net, 3, e0=0.8 * np.log(5), novelty=0.9)
    returns, used = [], []
    for i in range(8):
        x = STREAM[i % 5]
        returns.append(hand.return_if_due())
        assert_close(adapter(x), hand.hand.logits(x))
        used.append(int(hand.update(x).sum()))
        assert_params(adapter.model, hand.hand)
        assert adapter.last.used == used[-1]
        assert bool(adapter.last.note) == returns[-1]
    assert returns == [False, False, False, True, False, False, True, False]
    assert any(0 < n < 24 for n in used)


def test_rdumb_defaults_are_those_of_its_code():
    """SGD 2.5e-4 with momentum, E0 = 0.4 ln 1000, d = 0.05, every 1,000 steps; tuned: ETA's scaling, Adam 1e-3."""
    method = steep.METHODS["rdumb"]()
    assert (method.lr, method.optimizer, method.every) == (2.5e-4, "sgd", 1000)
    assert (method.margin, method.margin_classes, method.novelty) == (0.4, 1000, 0.05)
    adapter = steep.adapt(make_net(), "rdumb", setting="tuned")
    assert isinstance(adapter._state.optimizer, torch.optim.Adam)
    adapter(STREAM[0])
    adapter.reset()
    assert at_rest(adapter.state_dict()["state"])


def test_rdumb_with_adam_forgets_the_moments_too():
    net, x = make_net(), STREAM[0]
    adapter = steep.adapt(net, "rdumb", optimizer="adam", lr=LR, every=2, novelty=2.0)
    fresh = steep.adapt(net, "eta", lr=LR, novelty=2.0)
    for s in (1, 2):
        adapter(STREAM[s])
    assert torch.equal(adapter(x), fresh(x))
    for a, b in zip(adapter.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert only(dict(adapter.model.named_parameters())).keys() == set(NORM)
