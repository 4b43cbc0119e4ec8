"""Views of images: each change against a naive one, pixel by pixel, and what all of them promise together."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import steep
from steep.core import augment
from steep.errors import InputError


def pictures(n: int = 4, channels: int = 3, height: int = 9, width: int = 12) -> torch.Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def grey(pixel: np.ndarray) -> float:
    return float(pixel @ [0.2989, 0.587, 0.114])


def jittered(image: np.ndarray, strength: list[float]) -> np.ndarray:
    """Brightness, contrast, saturation, hue, gamma, one pixel after the other."""
    brightness, contrast, saturation, hue, gamma = strength
    pixels = np.clip(brightness * image.reshape(3, -1).T, 0, 1)
    middle = np.mean([grey(p) for p in pixels])
    pixels = np.clip(contrast * pixels + (1 - contrast) * middle, 0, 1)
    done = []
    for pixel in pixels:
        mixed = np.clip(saturation * pixel + (1 - saturation) * grey(pixel), 0, 1)
        h, s, v = colorsys.rgb_to_hsv(*mixed)
        done.append(np.clip(colorsys.hsv_to_rgb((h + hue) % 1, s, v), 1e-8, 1) ** gamma)
    return np.array(done).T.reshape(image.shape)


def test_colours_change_as_pixel_by_pixel():
    x = pictures()
    x[0, :, 0, 0] = 0.5  # no hue
    rows = [[1.4, 0.7, 0.5, 0.06, 0.7], [0.6, 1.3, 1.5, -0.06, 1.3], [1, 1, 1, 0.5, 1], [1.0, 1.0, 1.0, 0.0, 1.0]]
    changed = augment.jitter(x, torch.tensor(rows, dtype=torch.float64))
    for image, row, result in zip(x.numpy(), rows, changed.numpy(), strict=True):
        np.testing.assert_allclose(result, jittered(image, row), atol=1e-12)
    np.testing.assert_allclose(changed[3], x[3], atol=1e-12)


@pytest.mark.parametrize("channels", [1, 4])
def test_images_without_colours_change_in_brightness_contrast_and_gamma(channels):
    x = pictures(1, channels)
    changed = augment.jitter(x, torch.tensor([[1.2, 0.8, 9.0, 9.0, 1.1]], dtype=torch.float64)).numpy()[0]
    bright = np.clip(1.2 * x.numpy()[0], 0, 1)
    np.testing.assert_allclose(changed, np.clip(0.8 * bright + 0.2 * bright.mean(), 1e-8, 1) ** 1.1, atol=1e-12)


def sampled(image: np.ndarray, x: float, y: float, edge: str) -> np.ndarray:
    """The value between four pixels; beyond the edge the last one goes on, or the image is mirrored at its centre."""
    last = image.shape[2] - 1, image.shape[1] - 1
    if edge == "reflection":
        x, y = (abs((v + n) % (2 * n) - n) for v, n in zip((x, y), last, strict=True))
    x, y = (min(max(v, 0), n) for v, n in zip((x, y), last, strict=True))
    left, top = min(int(x), last[0] - 1), min(int(y), last[1] - 1)
    a, b = x - left, y - top
    rows = [(1 - a) * image[:, t, left] + a * image[:, t, left + 1] for t in (top, top + 1)]
    return (1 - b) * rows[0] + b * rows[1]


@pytest.mark.parametrize("edge", ["border", "reflection"])
def test_an_image_is_turned_scaled_and_shifted_about_its_centre(edge):
    x = pictures(2)
    angle, scale, right, down = 0.2, 1.08, 1.0, -1.0
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]) / scale
    matrix = np.column_stack([turn, -turn @ [right, down]])
    moved = augment.move(x, torch.tensor(matrix)[None].expand(2, 2, 3), edge=edge, margin=1).numpy()
    centre = np.array([5.5, 4.0])
    for image, result in zip(x.numpy(), moved, strict=True):
        assert result.shape == (3, 11, 14)
        for row in range(11):
            for column in range(14):
                place = turn @ (np.array([column - 1, row - 1]) - centre - [right, down]) + centre
                np.testing.assert_allclose(result[:, row, column], sampled(image, *place, edge), atol=1e-12)


def test_the_draws_of_a_move_have_the_published_ranges():
    """15° each way, 0.9 to 1.1, an eighth of the side in whole pixels: of the inverse, row vectors have length 1/s."""
    u = torch.rand(4000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = augment._affine(u, torch.Size((32, 48))).numpy()
    scale = 1 / np.hypot(matrix[:, 0, 0], matrix[:, 0, 1])
    angle = np.degrees(np.arctan2(matrix[:, 0, 1], matrix[:, 0, 0]))
    shift = -np.einsum("bij,bj->bi", np.linalg.inv(matrix[:, :, :2]), matrix[:, :, 2])
    assert (scale.min(), scale.max()) == pytest.approx((0.9, 1.1), abs=1e-3)
    assert (angle.min(), angle.max()) == pytest.approx((-15, 15), abs=0.1)
    assert {*np.abs(shift).max(axis=0).round(9)} == {4.0, 6.0}
    np.testing.assert_allclose(shift, shift.round(), atol=1e-9)


def test_blur_is_a_gaussian_of_five_taps():
    x, sigma = pictures(2), [0.3, 0.5]
    blurred = augment.blur(x, torch.tensor(sigma, dtype=torch.float64)[:, None]).numpy()
    assert blurred.shape == (2, 3, 5, 8)
    for image, s, result in zip(x.numpy(), sigma, blurred, strict=True):
        taps = np.exp(-0.5 * (np.arange(-2, 3) / s) ** 2)
        kernel = np.outer(taps, taps) / taps.sum() ** 2
        for row in range(5):
            for column in range(8):
                window = image[:, row : row + 5, column : column + 5]
                np.testing.assert_allclose(result[:, row, column], (window * kernel).sum(axis=(1, 2)), atol=1e-12)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 1, 1, 5), (3, 3, 2, 2), (2, 4, 7, 9), (2, 3, 40, 25), (0, 3, 8, 8)]
)
@pytest.mark.parametrize("blurred", [False, True])
def test_any_size_and_number_of_images(shape, blurred):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    for edge in ("border", "reflection"):
        views = augment.view(x, torch.Generator().manual_seed(2), edge=edge, blurred=blurred, mirror=True)
        assert views.shape == shape
        assert ((views >= 0) & (views <= 1)).all()


def test_each_image_has_its_own_draw_and_the_generator_decides():
    x = pictures(1).expand(6, -1, -1, -1)
    first, again, other = (augment.view(x, torch.Generator().manual_seed(s), mirror=True) for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all((first[i] - first[0]).abs().mean() > 0.01 for i in range(1, 6))


def test_a_view_that_may_not_be_mirrored_is_not():
    """A ramp from left to right stays one: the slope of every view has its sign."""
    ramp = torch.linspace(0.1, 0.9, 32).expand(64, 3, 32, 32)
    slope = lambda v: v[..., 24].mean(dim=(1, 2)) - v[..., 8].mean(dim=(1, 2))  # noqa: E731
    assert (slope(augment.view(ramp, torch.Generator().manual_seed(0), mirror=False)) > 0).all()
    mirrored = (slope(augment.view(ramp, torch.Generator().manual_seed(0), mirror=True)) < 0).sum()
    assert 16 < mirrored < 48


def test_images_of_another_range_keep_it():
    """Normalised images are not cut off at 0 and 1: a view has their range, stretched by no more than the changes."""
    x = 4 * pictures(8) - 2
    views = augment.view(x, torch.Generator().manual_seed(0), mirror=True)
    low, high = x.amin(dim=(1, 2, 3)), x.amax(dim=(1, 2, 3))
    assert (views.amin(dim=(1, 2, 3)) >= low - 1e-9).all()
    assert (views.amax(dim=(1, 2, 3)) <= high + 1e-9).all()
    assert (views.amin(dim=(1, 2, 3)) < -0.5).any()
    assert (views.amax(dim=(1, 2, 3)) > 1.5).any()


def test_volumes_have_no_views():
    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.head = torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.norm(x.flatten(1)))

    with pytest.raises(InputError, match=r"expected \(B, C, H, W\)"):
        steep.adapt(Flat(), "roid", guard="raise")(torch.rand(4, 1, 2, 2, 2))


# AugMix --------------------------------------------------------------------------------------------------------------


def changed(x: torch.Tensor, kind: int, strength: float = 0.5, sign: float = 0.0) -> np.ndarray:
    """The change of that number, of all images."""
    numbers = (torch.full((len(x),), v, dtype=x.dtype) for v in ((kind + 0.5) / 9, strength, sign))
    return augment.change(x, *numbers).numpy()


def as_pil(image: torch.Tensor) -> Image.Image:
    return Image.fromarray((255 * image).round().to(torch.uint8).permute(1, 2, 0).numpy())


def of_pil(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1) / 255


@pytest.mark.parametrize(
    ("kind", "work", "near"),
    [
        (0, ImageOps.autocontrast, 1 / 255),  # which rounds down to 256 levels
        (1, ImageOps.equalize, 1e-9),
        (3, lambda image: ImageOps.solarize(image, 256 - int(0.55 * 25.6)), 1e-9),
        (8, lambda image: ImageOps.posterize(image, 4), 1e-9),
    ],
)
def test_changes_of_values_are_those_of_pil(kind, work, near):
    """At strength 0.5 the level is 0.1 + 0.9 · 0.5 = 0.55 of ten."""
    levels = torch.rand(3, 3, 32, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 2
    x = (0.1 + 0.85 * levels).mul(255).round() / 255
    x[2] = 7 / 255  # one level only: nothing to make even
    for image, result in zip(x, changed(x, kind), strict=True):
        expected = of_pil(work(as_pil(image)))
        np.testing.assert_allclose(result, expected, atol=near)
    assert np.abs(changed(x, kind) - x.numpy())[:2].max() > 0.02


@pytest.mark.parametrize("sign", [0.0, 0.9])
def test_changes_of_place_are_small_moves_onto_grey(sign):
    """2.85° at most are cut to whole degrees; a shear of 0.03 · level; a third of a tenth of the side, in pixels."""
    x = pictures(2, height=64, width=96)
    level, s = 0.1 + 0.9 * 0.95, 1 if sign < 0.5 else -1
    angle, shear = s * math.radians(int(30 * level / 10)), s * 0.03 * level
    matrices = {
        2: [[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0]],
        4: [[1, shear, 0], [0, 1, 0]],
        5: [[1, 0, 0], [shear, 1, 0]],
        6: [[1, 0, s * int(level * 96 / 30)], [0, 1, 0]],
        7: [[1, 0, 0], [0, 1, s * int(level * 64 / 30)]],
    }
    assert int(30 * level / 10) == 2
    centre = np.array([47.5, 31.5])
    for kind, matrix in matrices.items():
        result, m = changed(x, kind, 0.95, sign), np.array(matrix)
        for row, column in ((0, 0), (63, 95), (20, 70), (40, 3)):
            place = m[:, :2] @ (np.array([column, row]) - centre) + m[:, 2] + centre
            for image, got in zip(x.numpy(), result, strict=True):
                padded = np.pad(image, ((0, 0), (8, 8), (8, 8)), constant_values=128 / 255)
                np.testing.assert_allclose(got[:, row, column], sampled(padded, *(place + 8), "border"), atol=1e-12)


def test_a_view_of_augmix_is_the_mixture_of_its_chains():
    """Numbers by hand: no shift, not mirrored, shares 1/3 of chains of length one; half of the image itself."""
    x = pictures(2)
    u = torch.zeros(2, 1, augment.NUMBERS, dtype=torch.float64)
    u[..., 0:2], u[..., 2], u[..., 3:7], u[..., 7:10] = 0.5, 0.9, 0.5, 0.2
    draws = torch.tensor([[0.5 / 9, 0.5, 0.0], [3.5 / 9, 0.5, 0.0], [8.5 / 9, 0.5, 0.0]], dtype=torch.float64)
    u[..., 10:] = torch.cat([torch.cat([draw, torch.rand(6, dtype=torch.float64)]) for draw in draws])
    (view,) = augment.augmix(x, u, mirror=True).unbind(dim=1)
    mixed = sum(changed(x, kind) for kind in (0, 3, 8)) / 3
    np.testing.assert_allclose(view, 0.5 * x.numpy() + 0.5 * mixed, atol=1e-12)
    longer = u.clone()
    longer[..., 7] = 0.4  # the first chain has a second change
    longer[..., 13:16] = draws[1]
    other = augment.augmix(x, longer, mirror=True)[:, 0].numpy()
    first = changed(torch.tensor(changed(x, 0)), 3)
    np.testing.assert_allclose(other, view.numpy() + (first - changed(x, 0)) / 6, atol=1e-12)
    mirrored = u.clone()
    mirrored[..., 2] = 0.1
    np.testing.assert_allclose(augment.augmix(x.flip(-1), mirrored, mirror=True)[:, 0], view, atol=1e-12)
    np.testing.assert_allclose(augment.augmix(x, mirrored, mirror=False)[:, 0], view, atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 1, 1, 5), (2, 4, 7, 9), (3, 3, 40, 25), (0, 3, 8, 8)])
def test_augmix_of_any_size(shape):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    u = torch.rand(shape[0], 50, augment.NUMBERS, generator=torch.Generator().manual_seed(2))
    views = augment.augmix(x, u, mirror=True)
    assert views.shape == (shape[0], 50, *shape[1:])
    assert ((views >= -1e-6) & (views <= 1 + 1e-6)).all()
