"""COME as the loss of Tent, ETA, EATA, SAR and DeYO: the entropy of an opinion, worked out by hand in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import steep
from reference import Adam, Hand, Momentum, assert_close, assert_params, entropy, make_images, make_net, only
from steep.core.losses import opinion_entropy
from test_derivations_deyo import HandDeyo
from test_derivations_entropy import E0_PAPER, LR, SOURCE, HandEta, HandSar, hand_fisher, replay, replay_sar

STREAM = [make_images(seed, side=8) for seed in range(4)]


def opinion(z: np.ndarray) -> np.ndarray:
    """(b_1, …, b_K, u): Dirichlet α = e^f + 1, strength S = Σ α, beliefs b = (α − 1) / S, doubt u = K / S."""
    alpha = np.exp(z) + 1
    strength = alpha.sum(axis=1, keepdims=True)
    return np.concatenate([(alpha - 1) / strength, z.shape[1] / strength], axis=1)


def come(z: np.ndarray) -> np.ndarray:
    """H = −Σ b ln b − u ln u of each row."""
    m = opinion(z)
    return -(m * np.log(m)).sum(axis=1)


def come_slope(z: np.ndarray) -> np.ndarray:
    """∂H/∂f_k = −b_k (ln b_k + H), without its part along f: at a fixed length of f there is none."""
    b = opinion(z)[:, :-1]
    slope = -b * (np.log(b) + come(z)[:, None])
    along = (slope * z).sum(axis=1, keepdims=True) / (z**2).sum(axis=1, keepdims=True)
    return slope - along * z


class ComeEta(HandEta):
    loss_of, slope_of = staticmethod(come), staticmethod(come_slope)


class ComeSar(HandSar):
    loss_of, slope_of = staticmethod(come), staticmethod(come_slope)


class ComeDeyo(HandDeyo):
    loss_of, slope_of = staticmethod(come), staticmethod(come_slope)


def test_the_loss_and_its_gradient():
    """Finite differences of H(c · f / ‖f‖) with c = ‖f‖ kept where it was; an opinion sums to 1."""
    z = np.random.default_rng(0).normal(scale=3, size=(6, 5))
    assert_close(opinion(z).sum(axis=1), np.ones(6), 1e-12)
    f = torch.tensor(z, requires_grad=True)
    value = opinion_entropy(f)
    assert_close(value.detach(), come(z), 1e-12)
    value.sum().backward()
    assert_close(f.grad, come_slope(z), 1e-10)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    for k in range(5):
        values = []
        for step in (1e-6, -1e-6):
            moved = z + step * np.eye(5)[k]
            values.append(come(moved * length / np.linalg.norm(moved, axis=1, keepdims=True)))
        np.testing.assert_allclose(f.grad[:, k], (values[0] - values[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_the_loss_where_a_class_is_ruled_out_or_nothing_is_known():
    f = torch.tensor([[1.0, -math.inf, 2.0], [0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = opinion_entropy(f)
    beliefs = np.array([math.e, math.e**2, 3.0]) / (math.e + math.e**2 + 3)  # K stays 3
    even = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert_close(value.detach(), np.array([-(m * np.log(m)).sum() for m in (beliefs, even)]), 1e-12)
    value.sum().backward()
    assert torch.isfinite(f.grad).all()
    assert opinion_entropy(torch.zeros(2, 3, dtype=torch.bfloat16)).dtype == torch.float32


def test_tent_descends_it():
    net = make_net()
    adapter, hand, optimizer = steep.adapt(net, "tent", lr=LR, loss="come"), Hand(net), Adam(LR)
    for x in STREAM:
        z = hand.logits(x)
        assert_close(adapter(x), z)
        assert_close(adapter.last.loss, come(z).mean())
        optimizer.step(hand.params, only(hand.backward(x, come_slope(z) / len(z))[0]))
        assert_params(adapter.model, hand)


def test_eta_and_eata_choose_and_weigh_by_entropy_and_descend_it():
    net = make_net(classes=40, sharpness=1.5)
    adapter = steep.adapt(net, "eta", lr=LR, novelty=2.0, loss="come")
    used = replay(adapter, ComeEta(net, e0=E0_PAPER, novelty=2.0), STREAM)
    assert all(0 < n < 20 for n in used)
    fisher = hand_fisher(net, SOURCE)
    adapter = steep.adapt(net, "eata", lr=LR, novelty=2.0, loss="come", source=SOURCE)
    replay(adapter, ComeEta(net, e0=E0_PAPER, novelty=2.0, fisher=fisher), STREAM)


def test_sar_filters_and_recovers_by_entropy_and_descends_it():
    net = make_net(1, sharpness=1.5)
    adapter = steep.adapt(net, "sar", setting="tuned", lr=LR, radius=0.3, loss="come")
    done = replay_sar(adapter, ComeSar(net, e0=0.4 * math.log(5), radius=0.3), STREAM)
    assert any(0 < second < 20 for _, second, *_ in done)
    z = Hand(net).logits(STREAM[0])
    floor = (entropy(z).mean() + come(z).mean()) / 2
    assert entropy(z).mean() < floor - 0.1  # by the loss itself it would not recover
    adapter = steep.adapt(net, "sar", lr=LR, recover_below=floor, loss="come")
    assert all(recovered for *_, recovered in replay_sar(adapter, ComeSar(net, floor=floor), STREAM[:1]))


def test_deyo_descends_it():
    net = make_net(sharpness=6.0)
    adapter = steep.adapt(net, "deyo", lr=LR, drop=0.02, loss="come")
    hand = ComeDeyo(net, Momentum(LR), drop=0.02)
    for x in STREAM:
        assert_close(adapter(x), hand.hand.logits(x))
        _, used, loss = hand.update(x)
        assert_params(adapter.model, hand.hand)
        assert adapter.last.used == used > 0
        assert_close(adapter.last.loss, loss)


@pytest.mark.parametrize("method", ["tent", "eta", "eata", "sar", "deyo"])
def test_the_default_is_the_entropy(method):
    adapters = [steep.adapt(make_net(), method, source=SOURCE, **hyper) for hyper in ({}, {"loss": "entropy"})]
    for x in STREAM[:2]:
        assert torch.equal(*(adapter(x) for adapter in adapters))
    with pytest.raises(steep.errors.InputError, match="loss: expected 'entropy' or 'come'"):
        steep.adapt(make_net(), method, loss="energy")


def test_it_holds_back_where_entropy_would_not():
    """On one direction of f it has no gradient at all, whereas entropy falls without end as f grows."""
    z = np.random.default_rng(1).normal(size=(4, 5))
    assert_close((come_slope(z) * z).sum(axis=1), np.zeros(4), 1e-12)
    assert (entropy(10 * z) < entropy(z)).all()
