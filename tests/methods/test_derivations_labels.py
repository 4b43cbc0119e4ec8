"""PL and SHOT: pseudo-labels, cross-entropy and information maximisation, worked out by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest

import steep
from reference import (
    NORM,
    Adam,
    Hand,
    assert_close,
    assert_params,
    at_rest,
    cross_entropy,
    cross_entropy_slope,
    entropy,
    entropy_slope,
    make_images,
    make_net,
    only,
    softmax,
)

LR = 0.02
STREAM = [make_images(seed) for seed in range(4)]
ALL = tuple(name for name, _ in make_net().named_parameters())


def confident(z: np.ndarray, threshold: float = 0.9) -> np.ndarray:
    return softmax(z).max(axis=1) > threshold


def label_slope(z: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """Gradient of the mean cross-entropy with the predicted class, over the confident images."""
    return np.where(sure[:, None], cross_entropy_slope(z, z.argmax(axis=1)), 0) / sure.sum()


# PL ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lr", [1e-5, 1e-3])
def test_pl_learns_from_confident_labels_with_all_parameters(lr):
    """θ ← Adam(θ, ∇ mean CE(f(x), argmax f(x)) over p_max > 0.9); all parameters, source statistics, logits before."""
    net = make_net(3)
    adapter = steep.adapt(net, "pl", **({} if lr == 1e-5 else {"lr": lr}))  # 1e-5 is the default
    hand, optimizer, used = Hand(net, "source"), Adam(lr), []
    for x in STREAM:
        z = hand.logits(x)
        assert_close(adapter(x), z)
        sure = confident(z)
        used.append(int(sure.sum()))
        optimizer.step(hand.params, hand.backward(x, label_slope(z, sure))[0])
        assert_params(adapter.model, hand, ALL)
        assert adapter.last.used == used[-1]
        assert_close(adapter.last.loss, cross_entropy(z, z.argmax(axis=1))[sure].mean())
    assert all(0 < n < 20 for n in used)
    assert len(set(used)) > 1  # otherwise a sum could pass for a mean


def test_pl_tuned_moves_normalisation_under_batch_statistics():
    net = make_net()
    adapter, hand, optimizer = steep.adapt(net, "pl", setting="tuned"), Hand(net), Adam(1e-3)
    for x in STREAM[:3]:
        z = hand.logits(x)
        assert_close(adapter(x), z)
        optimizer.step(hand.params, only(hand.backward(x, label_slope(z, confident(z)))[0]))
        assert_params(adapter.model, hand)


def test_pl_threshold_divides_the_batch():
    """Of two images at p_max just below and just above the threshold, one counts."""
    net, x = make_net(3), STREAM[0]
    z = Hand(net, "source").logits(x)
    sure = np.sort(softmax(z).max(axis=1))
    for k in (5, 12):
        adapter = steep.adapt(net, "pl", threshold=(sure[k] + sure[k + 1]) / 2)
        adapter(x)
        assert adapter.last.used == 20 - (k + 1)


def test_pl_without_a_confident_image_stands_still():
    """max p ≤ 0.9 everywhere: no parameter moves, Adam takes no step."""
    net, x = make_net(3, sharpness=0.3), STREAM[0]
    assert not confident(Hand(net, "source").logits(x)).any()
    adapter = steep.adapt(net, "pl", lr=LR, predict="after")
    assert_close(adapter(x), Hand(net, "source").logits(x))
    assert_params(adapter.model, Hand(net), ())
    assert at_rest(adapter.state_dict()["state"])
    assert adapter.last.used == 0
    assert adapter.last.skipped


# SHOT ----------------------------------------------------------------------------------------------------------------


def shot(z: np.ndarray, weight: float = 0.3) -> tuple[float, np.ndarray]:
    """mean H − diversity + 0.3 × confident cross-entropy, diversity = −Σ m ln(m + 1e-5), m = mean p; and its slope.

    With g_j = ∂(−diversity)/∂m_j = ln(m_j + 1e-5) + m_j/(m_j + 1e-5), and ∂m_j/∂z_ik = p_ij ([j = k] − p_ik)/B,
    the slope of −diversity is p_ik (g_k − Σ_j p_ij g_j)/B.
    """
    p, n = softmax(z), len(z)
    m = p.mean(axis=0)
    loss = entropy(z).mean() + (m * np.log(m + 1e-5)).sum()
    g = np.log(m + 1e-5) + m / (m + 1e-5)
    slope = entropy_slope(z) / n + p * (g - p @ g[:, None]) / n
    sure = confident(z)
    if sure.any():
        loss += weight * cross_entropy(z, z.argmax(axis=1))[sure].mean()
        slope = slope + weight * label_slope(z, sure)
    return loss, slope


@pytest.mark.parametrize("sharpness", [0.5, 3.0, 20.0], ids=["none confident", "some confident", "most confident"])
def test_shot_follows_its_three_terms(sharpness):
    net = make_net(sharpness=sharpness)
    adapter, hand, optimizer = steep.adapt(net, "shot", lr=LR), Hand(net), Adam(LR)
    share = []
    for x in STREAM:
        z = hand.logits(x)
        share.append(confident(z).mean())
        loss, slope = shot(z)
        assert_close(adapter(x), z)
        optimizer.step(hand.params, only(hand.backward(x, slope)[0]))
        assert_close(adapter.last.loss, loss)
        assert_params(adapter.model, hand)
    assert {0.5: max(share) == 0, 3.0: 0.2 < np.mean(share) < 0.8, 20.0: min(share) > 0.5}[sharpness]


def test_shot_has_the_guard_inside_the_logarithm():
    """A class that no image takes: −Σ m ln(m + 1e-5) stays finite, and differs from −Σ m ln m."""
    net, x = make_net(classes=40, sharpness=15.0), STREAM[0]
    z = Hand(net).logits(x)
    m = softmax(z).mean(axis=0)
    assert m.min() < 1e-12
    adapter = steep.adapt(net, "shot")
    adapter(x)
    assert_close(adapter.last.loss, shot(z)[0])
    with_log_m = shot(z)[0] - (m * np.log(m + 1e-5)).sum() + (m * np.log(m)).sum()
    assert abs(adapter.last.loss - with_log_m) > 1e-5


def test_shot_slope_is_a_central_difference():
    """The by-hand gradient of the three terms wrt the BatchNorm parameters."""
    hand, x, h = Hand(make_net()), STREAM[0], 1e-6
    grads, _ = hand.backward(x, shot(hand.logits(x))[1])
    for name in NORM:
        for i in range(len(hand.params[name])):
            old, values = hand.params[name][i], []
            for sign in (1, -1):
                hand.params[name][i] = old + sign * h
                values.append(shot(hand.logits(x))[0])
            hand.params[name][i] = old
            np.testing.assert_allclose(grads[name][i], (values[0] - values[1]) / (2 * h), rtol=1e-6, atol=1e-8)
