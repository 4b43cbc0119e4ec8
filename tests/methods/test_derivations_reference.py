"""The numpy twin that the derivations stand on: its forward is torch's, its backward is a finite difference."""

from __future__ import annotations

import numpy as np
import pytest

from reference import (
    Hand,
    assert_close,
    cross_entropy,
    cross_entropy_slope,
    energy,
    entropy,
    entropy_slope,
    make_images,
    make_net,
    softmax,
)

LOSSES = {
    "entropy": (lambda z, y: entropy(z).mean(), lambda z, y: entropy_slope(z) / len(z)),
    "cross-entropy": (lambda z, y: cross_entropy(z, y).mean(), lambda z, y: cross_entropy_slope(z, y) / len(z)),
    "energy": (lambda z, y: energy(z).mean(), lambda z, y: -softmax(z) / len(z)),
}


def test_forward_is_that_of_torch():
    net, x = make_net(), make_images(0)
    assert_close(Hand(net, "source").logits(x), net(x).detach().numpy(), 1e-12)
    expected = Hand(net, "train").logits(x)
    net.train()
    assert_close(expected, net(x).detach().numpy(), 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("statistics", "n"), [("batch", 18), ("batch", 5), ("batch", 1), ("source", 6), ("train", 6)])
def test_backward_is_a_central_difference(loss, statistics, n):
    """∂loss/∂θ and ∂loss/∂x ≈ (loss(+h) − loss(−h)) / 2h, for every parameter and for some pixels."""
    hand, x = Hand(make_net(1), statistics), make_images(1, n).numpy()
    labels = np.random.default_rng(0).integers(0, 5, n)
    value, slope = LOSSES[loss]
    grads, pixels = hand.backward(x, slope(hand.logits(x), labels))

    def difference(array: np.ndarray, index: tuple[int, ...]) -> float:
        h, old, values = 1e-6, array[index], []
        for sign in (1, -1):
            array[index] = old + sign * h
            values.append(value(hand.logits(x), labels))
        array[index] = old
        return (values[0] - values[1]) / (2 * h)

    for name, p in hand.params.items():
        indices = list(np.ndindex(p.shape))[:: 1 if name.startswith("bn") else 17]
        numeric = [difference(p, i) for i in indices]
        np.testing.assert_allclose([grads[name][i] for i in indices], numeric, rtol=1e-6, atol=1e-8, err_msg=name)
    indices = list(np.ndindex(x.shape))[:: 7 * n]
    numeric = [difference(x, i) for i in indices]
    np.testing.assert_allclose([pixels[i] for i in indices], numeric, rtol=1e-6, atol=1e-8)
