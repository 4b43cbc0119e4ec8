"""ImageNet-C's corruptions at 224 pixels: their numbers, golden tests, and the same bytes however a set is cut."""

from __future__ import annotations

import naive
import numpy as np
import pytest
import torch

from benchmarks import original_corruptions as original
from steep.corruptions import BENCHMARK, CORRUPTIONS, apply, blur, corrupt, filters, frost, parameters
from steep.corruptions.elastic import _fold
from steep.corruptions.random import Stream

SIDE, SEED, FIRST = 224, 7, 40


class Drawn:
    """The draws of one picture's own stream, in the shape the naive versions ask for."""

    def __init__(self, name, severity, index):
        self.stream = Stream(SEED, name, severity, index, 1)

    def normal(self, *shape):
        return self.stream.normal(*shape)[0].double().numpy()

    def between(self, low, high, *shape):
        return self.stream.between(low, high, *shape)[0].double().numpy()

    def poisson(self, image, photons):
        return self.stream.poisson(torch.from_numpy(image)[None], float(photons))[0].numpy()

    def moves(self, shift, height, width):
        return self.stream.integers(-shift, shift, 2, height, width)[0].numpy()

    def window(self, height, width):
        picture = frost._pictures()[1][int(self.stream.integers(0, 5)[0])]
        u, v = self.stream.uniform(2)[0].double().numpy()
        row, column = int(u * (picture.shape[0] - height)), int(v * (picture.shape[1] - width))
        return picture[row : row + height, column : column + width]


@pytest.fixture(scope="module")
def photo():
    """A natural picture of 224 pixels with black, white and grey pixels in it."""
    flower = pytest.importorskip("sklearn.datasets").load_sample_images().images[1][100:324, 200:424].copy()
    flower[:3], flower[3:6], flower[6:9] = 0, 255, 128
    return flower


def reference(image, name, severity):
    p, draws = original.IMAGENET[name][severity - 1], Drawn(name, severity, FIRST)
    if name == "spatter":
        return naive.spatter(image, p, draws.normal(SIDE, SIDE))
    return getattr(original, name)(image, p, draws)


EXACT = ("shot_noise", "impulse_noise", "pixelate", "jpeg_compression")
TIES = ("defocus_blur", "saturate", "glass_blur")  # as at 32 pixels: whole levels are common results


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_agrees_with_the_naive_version(name, severity, photo):
    ours = corrupt(photo[None], name, severity, SEED, first=FIRST)[0].astype(int)
    apart = abs(ours - reference(photo, name, severity))
    if name in EXACT:
        assert apart.max() == 0
    assert (apart <= 1).mean() >= 0.999
    assert (apart == 0).mean() >= (0.8 if name in TIES else 0.98), "equal on too few values"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_numbers_are_those_of_the_script(name):
    for severity, row in enumerate(original.IMAGENET[name], 1):
        ours = parameters.lookup(name, severity, SIDE, SIDE)
        assert ours == parameters.lookup(name, severity, 32, 32, "imagenet")
        if name == "elastic_transform":
            ours = tuple(SIDE * v for v in ours)
        elif name == "pixelate":
            ours = (int(SIDE * ours[0]),)
        assert ours == pytest.approx(row[1:] if name == "zoom_blur" else row)


def test_table_is_chosen_by_size_and_named():
    sides = {
        31: "scaled",
        32: "cifar",
        64: "tiny-imagenet",
        96: "scaled",
        127: "scaled",
        128: "imagenet",
        600: "imagenet",
    }
    assert {side: parameters.table_for(side, side) for side in sides} == sides
    assert parameters.table_for(500, 100) == "scaled"
    image = np.full((1, SIDE, SIDE, 3), 100, np.uint8)
    image[:, ::2] = 50
    assert (corrupt(image, "contrast", 5) == corrupt(image, "contrast", 5, table="imagenet")).all()
    assert (corrupt(image, "contrast", 5) != corrupt(image, "contrast", 5, table="cifar")).any()


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name != "jpeg_compression"])
def test_cut_and_order_do_not_matter(name, photo, monkeypatch):
    images = np.stack([photo, photo[::-1], photo[:, ::-1]])
    severity = 2 if name == "elastic_transform" else 5  # its wide filter; the longest taps of the others
    whole = corrupt(images, name, severity, seed=3)
    monkeypatch.setattr(apply, "CPU_PIXELS", 3 * SIDE * SIDE)
    assert (corrupt(images, name, severity, seed=3) == whole).all()
    assert (corrupt(images[2:], name, severity, seed=3, first=2) == whole[2:]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_cpu_and_gpu_agree(name):
    coarse = torch.rand(8, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, size=(SIDE, SIDE), mode="bilinear")
    images = (fine * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    for severity in range(1, 6):
        theirs = corrupt(images.cuda(), name, severity, seed=3)
        assert (corrupt(images, name, severity, seed=3).int() - theirs.cpu().int()).abs().max() <= 1


@pytest.mark.parametrize("name", BENCHMARK)
def test_grey_and_oblong_pictures(name, photo):
    images = np.ascontiguousarray(photo[None, :140, :, 0])
    assert corrupt(images, name, 5).shape == (1, 140, SIDE)


def test_motion_blur_of_large_pictures_takes_the_taps_of_small_ones(photo, monkeypatch):
    """On a CPU the two ways to add up the taps give the same bytes."""
    planes = torch.from_numpy(photo).permute(2, 0, 1)[None].contiguous()
    angle = torch.tensor([-31.0])
    by_slices = blur.drag(planes, angle, 20, 15)
    monkeypatch.setattr(blur, "LARGE", 10_000)
    assert torch.equal(blur.drag(planes, angle, 20, 15), by_slices)


def test_a_disk_is_correlated_as_any_kernel(photo):
    x = filters.planes(torch.from_numpy(photo[None]))
    for radius in (4, 8, 10):
        kernel = blur.disk(radius, 0.5)
        assert torch.allclose(filters.correlate_disk(x, kernel), filters.correlate(x, kernel), atol=1e-3)
        theirs = original.disk(radius, 0.5)
        rim = (len(theirs) - len(kernel)) // 2
        assert np.array(kernel) == pytest.approx(theirs[rim : len(theirs) - rim, rim : len(theirs) - rim], abs=1e-6)
        assert (np.sum(kernel) > 1.01) == (radius >= 8)


@pytest.mark.parametrize(("repeat_edge", "mode"), [(True, "symmetric"), (False, "reflect")])
def test_places_far_outside_are_mirrored_as_often_as_needed(repeat_edge, mode):
    index = torch.arange(-50, 62, dtype=torch.int32)
    assert _fold(index, 12, repeat_edge).tolist() == np.pad(np.arange(12), 50, mode=mode).tolist()
