"""LAME, T3A and AEA: what they make of the features before the last layer, worked out by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import steep
from reference import (
    Hand,
    assert_close,
    assert_params,
    energy,
    entropy,
    entropy_slope,
    make_images,
    make_net,
    only,
    softmax,
)

STREAM = [make_images(seed) for seed in range(6)]


def features(hand: Hand, x) -> np.ndarray:
    return hand._forward(np.asarray(x))[1][-1]


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


# LAME ----------------------------------------------------------------------------------------------------------------


def affinity(phi: np.ndarray, kind: str, k: int) -> np.ndarray:
    """RBF: σ is the mean distance to the k-th nearest image, itself the first; or 1 for the k nearest others."""
    phi = unit(phi)
    n = len(phi)
    distance = np.array([[np.linalg.norm(a - b) for b in phi] for a in phi])
    if kind == "rbf":
        sigma = np.mean([sorted(row)[min(k, n) - 1] for row in distance])
        return np.exp(-(distance**2) / (2 * sigma**2))
    w = np.zeros((n, n))
    for i in range(n):
        others = sorted((distance[i, j], j) for j in range(n) if j != i)
        for _, j in others[:k]:
            w[i, j] = 1
    return w


@pytest.mark.parametrize(("kind", "k", "n"), [("rbf", 5, 20), ("rbf", 3, 20), ("rbf", 5, 3), ("neighbours", 5, 20)])
def test_lame_answers_with_the_fixed_point(kind, k, n):
    """z_i ∝ q_i exp(Σ_j w_ij z_j), from z = q on; the statistics are the source's and nothing moves."""
    net = make_net(sharpness=2.0)
    adapter, hand = steep.adapt(net, "lame", affinity=kind, neighbours=k), Hand(net, "source")
    for x in STREAM:
        x = x[:n]
        q = softmax(hand.logits(x))
        w, z = affinity(features(hand, x), kind, k), q
        for _ in range(100):
            z = q * np.exp(w @ z)
            z = z / z.sum(axis=1, keepdims=True)
        answer = adapter(x)
        assert_close(softmax(answer.numpy()), z, 1e-9)
        assert np.abs(z - q).max() > 0.01
        assert np.abs(q * np.exp(w @ z) / (q * np.exp(w @ z)).sum(axis=1, keepdims=True) - z).max() < 1e-4
    assert_params(adapter.model, hand, ())


def test_lame_lowers_its_objective():
    """Σ KL(z ‖ q) − Σ w z·z of the symmetric affinity: below that of the answers it starts from, and falling."""
    net = make_net(sharpness=2.0)
    hand, x = Hand(net, "source"), STREAM[0]
    q, w = softmax(hand.logits(x)), affinity(features(hand, x), "rbf", 5)

    def objective(z: np.ndarray) -> float:
        return float((z * np.log(z / q)).sum() - (w * (z @ z.T)).sum())

    zs = [softmax(steep.adapt(net, "lame", iterations=i)(x).numpy()) for i in (1, 2, 5, 100)]
    values = [objective(z) for z in (q, *zs)]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[-1] > 0.1


@pytest.mark.parametrize("kind", ["rbf", "neighbours"])
def test_lame_of_one_image_and_of_the_same_one_again(kind):
    adapter = steep.adapt(make_net(), "lame", affinity=kind)
    assert torch.isfinite(adapter(STREAM[0][:1])).all()
    same = adapter(STREAM[0][:1].repeat(9, 1, 1, 1))
    assert torch.isfinite(same).all()
    assert_close(same, np.tile(same[:1].numpy(), (9, 1)), 1e-9)


# T3A -----------------------------------------------------------------------------------------------------------------


class HandT3A:
    """Iwasawa & Matsuo 2021: a list of (feature, label, entropy), which begins with the last layer's weights."""

    def __init__(self, net, most) -> None:
        self.hand, self.most = Hand(net, "source"), most
        weights = self.hand.params["fc.weight"]
        self.supports = self.labelled(weights, weights @ weights.T + self.hand.params["fc.bias"])

    @staticmethod
    def labelled(features, logits) -> list:
        return list(zip(features, logits.argmax(axis=1), entropy(logits), strict=True))

    def learn(self, x) -> None:
        self.supports += self.labelled(features(self.hand, x), self.hand.logits(x))

    def answer(self, x) -> np.ndarray:
        phi = features(self.hand, x)
        answer = np.zeros((len(phi), len(self.hand.params["fc.bias"])))
        for k in range(answer.shape[1]):
            mine = sorted((s for s in self.supports if s[1] == k), key=lambda s: s[2])[: self.most]
            if mine:
                answer[:, k] = phi @ unit(np.sum([unit(s[0]) for s in mine], axis=0))
        return answer


@pytest.mark.parametrize("most", [1, 3, 20, None])
@pytest.mark.parametrize("classes", [5, 12])
def test_t3a_answers_by_the_surest_features_of_each_class(most, classes):
    """Each batch is learnt first and then answered; with predict="before", answered by what came before it."""
    net = make_net(classes=classes, sharpness=2.0)
    after, before = (steep.adapt(net, "t3a", supports=most, predict=predict) for predict in ("after", "before"))
    hand, moves = HandT3A(net, most), []
    for x in STREAM:
        old = hand.answer(x)
        assert_close(before(x), old)
        hand.learn(x)
        moves.append(np.abs(hand.answer(x) - old).max())
        assert_close(after(x), hand.answer(x))
    assert max(moves) > 1e-3 or most == 1  # the one of least entropy may well be the weights
    assert_params(after.model, hand.hand, ())


def test_t3a_takes_20_supports_as_they_come_and_forgets_the_least_sure():
    net = make_net(sharpness=2.0)
    adapter, hand = steep.adapt(net, "t3a"), HandT3A(net, 20)
    for x in STREAM:
        adapter(x)
        hand.learn(x)
    doubt = adapter.state_dict()["state"]["doubt"].numpy()
    for k in range(5):
        expected = sorted(s[2] for s in hand.supports if s[1] == k)[:20]
        assert_close(doubt[k, : len(expected)], np.array(expected))
        assert np.isinf(doubt[k, len(expected) :]).all()
    assert any(sum(s[1] == k for s in hand.supports) > 20 for k in range(5))


def test_t3a_keeps_all_supports_where_the_published_code_drops_one_of_each_class_at_every_batch():
    """There, "all" is −1, and [:-1] leaves out the least sure."""
    net, x = make_net(sharpness=2.0), STREAM[0]
    hand = HandT3A(net, None)
    hand.learn(x)
    everything = hand.answer(x)
    assert_close(steep.adapt(net, "t3a", supports=None)(x), everything)
    hand.most = -1
    assert np.abs(hand.answer(x) - everything).max() > 1e-3


# AEA -----------------------------------------------------------------------------------------------------------------


class HandAea:
    """Choi et al. 2025, as published: entropy, softplus of the energy above the lower half's, cosine to W Wᵀ."""

    def __init__(self, net, *, lr=1e-3, l2=1.0, l3=25.0, tau=0.99, parts=2) -> None:
        self.hand, self.lr, self.l2, self.l3, self.tau, self.parts = Hand(net), lr, l2, l3, tau, parts
        self.v: dict = {}

    def update(self, x) -> tuple[float, int]:
        z = self.hand.logits(x)
        n, w = len(z), self.hand.params["fc.weight"]
        p, e = softmax(z), energy(z)
        low = np.sort(e)[: int(np.ceil(n / self.parts))].mean()
        label, sure = p.argmax(axis=1), p.max(axis=1)
        direction = (w @ w.T)[label]
        chosen = sure >= self.tau
        length, other = np.linalg.norm(z, axis=1), np.linalg.norm(direction, axis=1)
        cosine = (z * direction).sum(axis=1) / (length * other)
        weight = np.where(chosen, np.exp(sure - self.tau), 0) / max(1, chosen.sum())
        loss = entropy(z).mean() + self.l2 * np.log1p(np.exp(e - low)).mean() + self.l3 * (weight * (1 - cosine)).sum()
        # ∂E/∂z = −p; softplus' = σ; ∂cos/∂z = d/(‖z‖‖d‖) − cos · z/‖z‖²
        rise = -p / (1 + np.exp(low - e))[:, None]
        turn = direction / (length * other)[:, None] - (cosine / length**2)[:, None] * z
        slope = entropy_slope(z) / n + self.l2 * rise / n - self.l3 * weight[:, None] * turn
        for name, g in only(self.hand.backward(x, slope)[0]).items():
            self.v[name] = 0.9 * self.v.get(name, 0.0) + g
            self.hand.params[name] = self.hand.params[name] - self.lr * (g + 0.9 * self.v[name])  # Nesterov
        return loss, int(chosen.sum())


@pytest.mark.parametrize(
    ("hyper", "settings"),
    [
        ({}, {}),
        ({"lr": 0.02, "threshold": 0.7, "turn_weight": 3.0}, {"lr": 0.02, "tau": 0.7, "l3": 3.0}),
        ({"lr": 0.002, "energy_weight": 4.0, "lower": 0.3}, {"lr": 0.002, "l2": 4.0, "parts": 3}),
    ],
    ids=["published", "turn", "energy"],
)
def test_aea_step_by_step(hyper, settings):
    net = make_net(sharpness=6.0)
    adapter, hand = steep.adapt(net, "aea", **hyper), HandAea(net, **settings)
    sure = []
    for x in STREAM:
        assert_close(adapter(x), hand.hand.logits(x))
        loss, chosen = hand.update(x)
        assert_close(adapter.last.loss, loss)
        assert_params(adapter.model, hand.hand)
        sure.append(chosen)
    assert any(0 < n < 20 for n in sure)


@pytest.mark.parametrize("n", [1, 17])
def test_aea_without_a_sure_image_leaves_that_term_out(n):
    """The published mean over nothing is NaN. One image is its own lower half; of 17, the lower half is 9."""
    net = make_net(sharpness=0.5)
    adapter, hand = steep.adapt(net, "aea"), HandAea(net)
    for x in STREAM[:2]:
        assert_close(adapter(x[:n]), hand.hand.logits(x[:n]))
        loss, chosen = hand.update(x[:n])
        assert chosen == 0
        assert_close(adapter.last.loss, loss)
        assert_params(adapter.model, hand.hand)
