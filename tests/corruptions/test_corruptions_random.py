"""The counter-based stream: the numbers it promises, and that they look random in every direction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from steep.corruptions.random import Stream

# A p-value below this in a fixed-seed test means a defect, not bad luck: a few dozen tests are done here.
UNLIKELY = 1e-4


def stream(first=0, count=1000, seed=0, name="test", severity=1):
    return Stream(seed, name, severity, first, count)


def flat(values):
    """p-value of the hypothesis that whole numbers 0..k-1 are equally likely."""
    counts = np.bincount(np.ravel(values))
    return stats.chisquare(counts).pvalue


@pytest.mark.parametrize("size", [1, 2, 3, 17, 100, 3072])
def test_bits_are_the_documented_hash(size):
    s = stream(first=5, count=9)
    keys = [k.numpy().astype(np.int64) for k in s._keys]
    ours = s.bits(size).numpy()

    def wrap(x):
        return ((x + 2**31) % 2**32) - 2**31

    x = np.arange(size)[None] ^ keys[0][:, None]
    x = wrap((x ^ (x >> 17)) * 0xED5AD4BB)
    x = wrap(wrap((x ^ (x >> 11)) + keys[1][:, None]) * 0xAC4C1B51)
    x = wrap((x ^ (x >> 15)) * 0x31848BAB)
    x = x ^ ((x >> 14) & 0x3FFFF)
    assert (ours == x).all()


def test_numbers_do_not_change_between_versions():
    """Published sets are made from these: a change here is a new benchmark."""
    s = Stream(0, "fog", 3, 0, 2)
    assert s.bits(3).tolist() == [[951024125, -2098921105, -1205987933], [-231229670, -650932069, -1040887447]]


def test_a_row_depends_on_its_index_alone():
    whole = stream(0, 50)
    part = stream(30, 5)
    for draw in (lambda s: s.uniform(7), lambda s: s.normal(3, 5), lambda s: s.integers(-3, 9, 11)):
        assert torch.equal(draw(whole)[30:35], draw(part))


def test_keys_differ_by_seed_name_severity_and_image():
    keys = set()
    for seed in (0, 1, -1, 2**70):
        for name in ("fog", "snow"):
            for severity in (1, 2):
                low, high = Stream(seed, name, severity, 0, 500)._keys
                keys |= set(zip(low.tolist(), high.tolist(), strict=True))
    assert len(keys) == 4 * 2 * 2 * 500


def test_uniform_moments_and_range():
    u = stream().uniform(3072).double()
    n = u.numel()
    assert 0 <= u.min() < 1e-5
    assert 1 - 1e-5 < u.max() < 1
    assert abs(u.mean() - 1 / 2) < 4 / np.sqrt(12 * n)
    assert abs(u.var() - 1 / 12) < 4 / np.sqrt(180 * n)


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_every_byte_is_flat(shift):
    bits = stream().bits(4096).numpy().view(np.uint32)
    assert flat((bits >> shift) & 255) > UNLIKELY


@pytest.mark.parametrize("shift", [0, 12, 24])
@pytest.mark.parametrize("axis", ["counter", "far counter", "image", "seed", "severity"])
def test_neighbours_are_independent(axis, shift):
    """Pairs of bytes fill the square evenly, whichever way the neighbour lies."""
    here = stream().bits(2048)
    there = {
        "counter": here.roll(-1, 1),
        "far counter": here.roll(-32, 1),
        "image": here.roll(-1, 0),
        "seed": stream(seed=1).bits(2048),
        "severity": stream(severity=2).bits(2048),
    }[axis]
    a, b = ((x.numpy().view(np.uint32) >> shift & 255).astype(np.int64) for x in (here, there))
    assert flat(a * 256 + b) > UNLIKELY


def test_one_flipped_input_bit_flips_half_of_the_output():
    s = stream(count=4000)
    low, _ = s._keys
    base = s.bits(1)
    for bit in range(31):
        other = stream(count=4000)
        other._keys = (low ^ (1 << bit), s._keys[1])
        changed = (base ^ other.bits(1)).numpy().view(np.uint32)
        rate = np.unpackbits(changed.view(np.uint8)).mean()
        assert abs(rate - 0.5) < 0.01


def test_normal_is_normal():
    z = stream().normal(3072).double().numpy().ravel()
    n = z.size
    assert stats.kstest(z, "norm").pvalue > UNLIKELY
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 4.5 * np.sqrt(spread / n)
    for far in (3, 4, 4.5):
        expected = 2 * stats.norm.sf(far) * n
        assert abs((abs(z) > far).sum() - expected) < 5 * np.sqrt(expected)
    assert abs(z).max() > 4.8
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4.5 / np.sqrt(n)


@pytest.mark.parametrize("photons", [500, 75, 15])
@pytest.mark.parametrize("level", [1, 40, 255])
def test_poisson_is_poisson(photons, level):
    mean = photons * level / 255
    k = stream().poisson(torch.full((1000, 500), level, dtype=torch.uint8), float(photons)).numpy().ravel()
    low, high = (int(stats.poisson.ppf(q, mean)) for q in (1e-4, 1 - 1e-4))
    expected = stats.poisson.pmf(np.arange(low, high + 1), mean)
    expected[0], expected[-1] = stats.poisson.cdf(low, mean), stats.poisson.sf(high - 1, mean)
    counts = np.bincount(np.clip(k, low, high), minlength=high + 1)[low : high + 1]
    assert stats.chisquare(counts, expected * k.size).pvalue > UNLIKELY


def test_poisson_of_black_is_zero():
    assert not stream(count=3).poisson(torch.zeros(3, 100, dtype=torch.uint8), 500.0).any()


def test_integers_cover_their_range_evenly():
    k = stream().integers(-2, 5, 1000).numpy()
    assert (k.min(), k.max()) == (-2, 4)
    assert flat(k + 2) > UNLIKELY
