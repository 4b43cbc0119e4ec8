"""The batch of crops against one picture at a time, and the schedule against its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from steep.data import to_floats
from steep.errors import InputError
from steep.training import crops, draw, learning_rate
from steep.training.augment import padded

CPU = torch.device("cpu")


def naive(image: np.ndarray, top: int, left: int, flip: bool, pad: int) -> np.ndarray:
    height, width, channels = image.shape
    out = np.zeros_like(image)
    for row in range(height):
        for column in range(width):
            y = row + top - pad
            x = (width - 1 - column if flip else column) + left - pad
            for channel in range(channels):
                if 0 <= y < height and 0 <= x < width:
                    out[row, column, channel] = image[y, x, channel]
    return out


@pytest.mark.parametrize(("shape", "pad"), [((7, 5, 3), 2), ((8, 8, 1), 1), ((4, 6, 3), 0)])
def test_crops_equal_the_naive_version_fed_the_same_draws(shape, pad):
    images = np.random.default_rng(0).integers(1, 256, (20, *shape), dtype=np.uint8)
    draws = draw(20, seed=3, epoch=1, pad=pad, flip=True, device=CPU)
    got = crops(padded(torch.from_numpy(images), pad, "zeros"), draws.batch(4, 16), pad)
    assert got.dtype == torch.uint8
    for index in range(12):
        order, top, left, flip = (part[4 + index].item() for part in draws)
        assert np.array_equal(got[index].numpy(), naive(images[order], top, left, flip, pad))
    assert draws.flip.any()
    assert not draws.flip.all()
    if pad:
        assert set(draws.top.tolist()) == set(range(2 * pad + 1)) == set(draws.left.tolist())


@pytest.mark.parametrize(("border", "mode"), [("zeros", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize(("shape", "pad"), [((7, 5, 3), 4), ((2, 8, 1), 1), ((4, 6, 3), 0)])
def test_borders_are_those_of_numpy(border, mode, shape, pad):
    images = np.random.default_rng(0).integers(1, 256, (3, *shape), dtype=np.uint8)
    around = ((0, 0), (pad, pad), (pad, pad), (0, 0))
    got = padded(torch.from_numpy(images), pad, border)
    assert got.dtype == torch.uint8
    assert np.array_equal(got.numpy(), np.pad(images, around, mode=mode))


def test_a_border_wider_than_the_picture_cannot_be_mirrored():
    with pytest.raises(InputError, match=r"pad: expected less than 5, .*got 5.*border \"zeros\""):
        padded(torch.zeros(1, 7, 5, 3, dtype=torch.uint8), 5, "reflect")


def test_without_padding_and_mirror_a_crop_is_the_picture():
    images = torch.arange(2 * 3 * 4 * 1, dtype=torch.uint8).reshape(2, 3, 4, 1)
    draws = draw(2, seed=0, epoch=0, pad=0, flip=False, device=CPU)
    assert torch.equal(crops(padded(images, 0, "zeros"), draws, 0), images[draws.order])


def test_an_epoch_is_decided_by_seed_and_number():
    def epoch(seed, number):
        return draw(50, seed=seed, epoch=number, pad=2, flip=True, device=CPU)

    assert all(torch.equal(a, b) for a, b in zip(epoch(1, 2), epoch(1, 2), strict=True))
    for other in (epoch(1, 3), epoch(2, 2), epoch(2, 1)):
        assert not torch.equal(epoch(1, 2).order, other.order)
    assert sorted(epoch(1, 2).order.tolist()) == list(range(50))


def test_drawing_leaves_torchs_own_stream_alone():
    before = torch.get_rng_state()
    draw(10, seed=0, epoch=0, pad=1, flip=True, device=CPU)
    assert torch.equal(before, torch.get_rng_state())


def test_input_is_float_in_the_layout_asked_for():
    pixels = torch.randint(0, 256, (3, 4, 5, 3), dtype=torch.uint8)
    for last in (True, False):
        layout = torch.channels_last if last else torch.contiguous_format
        x = to_floats(pixels, memory_format=layout)
        assert torch.equal(x, pixels.permute(0, 3, 1, 2).float() / 255)
        assert x.is_contiguous(memory_format=layout)


@pytest.mark.parametrize(("total", "warmup"), [(100, 10), (40, 0), (7, 7), (1, 0)])
def test_schedule_is_linear_then_half_a_cosine(total, warmup):
    rates = [learning_rate(step, total=total, warmup=warmup, peak=0.3) for step in range(total)]
    for step, rate in enumerate(rates):
        if step < warmup:
            assert rate == pytest.approx(0.3 * (step + 1) / warmup)
        else:
            assert rate == pytest.approx(0.3 * math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2)
    assert max(rates) == pytest.approx(0.3)
    assert min(rates) > 0
