"""Energy and entropy: the ways they should be invariant, and extreme logits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import steep
from steep.core.losses import entropy


def logits(bound: float):
    shapes = st.tuples(st.integers(1, 5), st.integers(2, 12))
    values = st.floats(-bound, bound, allow_nan=False, width=64)
    return shapes.flatmap(lambda s: arrays("float64", s, elements=values)).map(torch.from_numpy)


@given(logits(1e4), st.floats(-1e4, 1e4))
def test_adding_a_constant_to_all_logits_lowers_energy_by_it_and_leaves_entropy(f, c):
    torch.testing.assert_close(steep.energy(f + c), steep.energy(f) - c, rtol=1e-9, atol=1e-7)
    torch.testing.assert_close(entropy(f + c), entropy(f), rtol=1e-6, atol=1e-6)


@given(logits(1e4), st.randoms())
def test_order_of_classes_does_not_matter(f, rng):
    order = list(range(f.shape[1]))
    rng.shuffle(order)
    torch.testing.assert_close(steep.energy(f[:, order]), steep.energy(f), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(entropy(f[:, order]), entropy(f), rtol=1e-9, atol=1e-9)


@given(logits(1e4))
def test_bounds_hold_for_huge_logits(f):
    top, k = f.max(dim=1).values, f.shape[1]
    e, h = steep.energy(f), entropy(f)
    assert torch.isfinite(e).all()
    assert torch.isfinite(h).all()
    assert (e <= -top + 1e-9).all()
    assert (e >= -top - math.log(k) - 1e-9).all()
    assert (h >= -1e-9).all()
    assert (h <= math.log(k) + 1e-9).all()


@given(logits(1e4))
def test_gradients_stay_finite_in_float32(f):
    f = f.float().requires_grad_(True)
    (steep.energy(f).sum() + entropy(f).sum()).backward()
    assert torch.isfinite(f.grad).all()


def test_by_hand():
    f = torch.tensor([[0.0, math.log(3.0)]])
    assert float(steep.energy(f)) == pytest.approx(-math.log(4.0))
    assert float(entropy(f)) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    assert float(steep.energy(f, torch.tensor([1]))) == pytest.approx(-math.log(3.0))


@pytest.mark.parametrize(("dtype", "out"), [("bfloat16", "float32"), ("float16", "float32"), ("float64", "float64")])
def test_half_precision_is_widened(dtype, out):
    f = torch.zeros(2, 3, dtype=getattr(torch, dtype))
    assert steep.energy(f).dtype == getattr(torch, out)
    assert entropy(f).dtype == getattr(torch, out)


def test_a_class_that_is_ruled_out_adds_nothing():
    f = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], requires_grad=True)
    masked = torch.cat([f, torch.full((2, 1), -math.inf)], dim=1)
    torch.testing.assert_close(entropy(masked), entropy(f), rtol=0, atol=0)
    (expected,) = torch.autograd.grad(entropy(f).sum(), f)
    (gradient,) = torch.autograd.grad(1e6 * entropy(masked).sum(), f)
    torch.testing.assert_close(gradient, 1e6 * expected)
