"""corrupt(): what goes in, what comes out, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steep.corruptions import BENCHMARK, CORRUPTIONS, EXTRA, apply, corrupt, frost, parameters, random
from steep.errors import InputError, UnknownNameError


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_names():
    assert len(BENCHMARK) == 15
    assert len(EXTRA) == 4
    assert CORRUPTIONS == BENCHMARK + EXTRA
    assert set(CORRUPTIONS) == set(apply.FUNCTIONS) == set(parameters.FIELDS)


@pytest.mark.parametrize("name", CORRUPTIONS)
@settings(max_examples=6, deadline=None)
@given(
    height=st.integers(8, 45),
    width=st.integers(8, 45),
    channels=st.sampled_from([None, 1, 3]),
    severity=st.integers(1, 5),
)
def test_any_size_keeps_shape_and_type(name, height, width, channels, severity):
    shape = (2, height, width) if channels is None else (2, height, width, channels)
    images = noise(*shape)
    before = images.copy()
    out = corrupt(images, name, severity)
    assert isinstance(out, np.ndarray)
    assert (out.shape, out.dtype) == (shape, np.uint8)
    assert (images == before).all(), "the input was written to"
    assert not np.shares_memory(out, images)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_large_pictures(name):
    assert corrupt(noise(1, 97, 70, 3), name, 5).shape == (1, 97, 70, 3)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_torch_and_numpy_agree(name):
    images = noise(3, 32, 32, 3)
    tensor = torch.from_numpy(images)
    out = corrupt(tensor, name, 3, seed=2)
    assert isinstance(out, torch.Tensor)
    assert (out.numpy() == corrupt(images, name, 3, seed=2)).all()
    view = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).permute(0, 2, 3, 1)  # not contiguous
    assert torch.equal(corrupt(view, name, 3, seed=2), out)


@pytest.mark.parametrize("name", ["fog", "shot_noise", "glass_blur"])
def test_batches_as_models_take_them_come_back_as_they_came(name):
    images = noise(3, 32, 24, 3)
    expected = torch.from_numpy(corrupt(images, name, 3, seed=2)).permute(0, 3, 1, 2)
    for dtype in (torch.uint8, torch.float32, torch.float64, torch.bfloat16):
        bytes_first = torch.from_numpy(images).permute(0, 3, 1, 2)
        x = bytes_first if dtype == torch.uint8 else (bytes_first.double() / 255).to(dtype)
        out = corrupt(x, name, 3, seed=2)
        assert (out.shape, out.dtype) == (x.shape, dtype)
        if dtype == torch.bfloat16:  # its steps at 1 are a level wide: the pixels that go in are already others
            assert 0 <= float(out.min()) < float(out.max()) <= 1
        else:
            assert torch.equal(out, expected if dtype == torch.uint8 else expected.to(dtype) / 255)
    floats = corrupt((images / np.float32(255)), name, 3, seed=2)
    assert floats.dtype == np.float32
    assert (floats == expected.permute(0, 2, 3, 1).numpy() / np.float32(255)).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_grey_with_and_without_channel_agree(name):
    images = noise(2, 32, 32)
    assert (corrupt(images, name, 4) == corrupt(images[..., None], name, 4)[..., 0]).all()


@pytest.mark.parametrize("name", ["fog", "contrast", "defocus_blur", "zoom_blur", "motion_blur", "elastic_transform"])
def test_grey_is_one_channel_of_colour(name):
    grey = noise(2, 32, 32)
    assert (corrupt(grey, name, 5) == corrupt(np.stack([grey] * 3, 3), name, 5)[..., 1]).all()


def test_grey_saturate_does_nothing():
    images = noise(2, 32, 32)
    assert (corrupt(images, "saturate", 5) == images).all()


def test_read_only_and_strided_arrays():
    images = noise(4, 32, 32, 3)
    expected = corrupt(images, "fog")
    images.flags.writeable = False
    assert (corrupt(images, "fog") == expected).all()
    assert (corrupt(images[:, ::-1][:, ::-1], "fog") == expected).all()


def test_severities_seeds_and_positions_differ():
    images = noise(2, 32, 32, 3)
    base = corrupt(images, "gaussian_noise", 3)
    assert (corrupt(images, "gaussian_noise", 3) == base).all()
    assert (corrupt(images, "gaussian_noise", 3, seed=1) != base).mean() > 0.5
    assert (corrupt(images, "gaussian_noise", 3, first=1) != base).mean() > 0.5
    same = np.stack([images[0]] * 2)
    first, second = corrupt(same, "gaussian_noise", 3)
    assert (first != second).mean() > 0.5


def test_table_is_chosen_by_size_and_by_hand():
    images = noise(1, 64, 64, 3)
    assert (corrupt(images, "contrast", 5) == corrupt(images, "contrast", 5, table="tiny-imagenet")).all()
    assert (corrupt(images, "contrast", 5) != corrupt(images, "contrast", 5, table="cifar")).any()
    for side, table in ((32, "cifar"), (64, "tiny-imagenet")):
        published = parameters.PUBLISHED[table]["contrast"][4]
        assert parameters.lookup("contrast", 5, side, side, "scaled") == pytest.approx(published)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_scaled_numbers_lie_between_the_tables(name):
    for severity in range(1, 6):
        low, middle, high = (parameters.scaled(name, severity, side) for side in (32, 45, 64))
        for a, b, c in zip(low, middle, high, strict=True):
            assert min(a, c) <= b <= max(a, c)


IMAGES = np.zeros((2, 32, 32, 3), np.uint8)


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        (IMAGES + np.float32(1.5), r"expected uint8 .*in \[0, 1\], got float32 \(2, 32, 32, 3\).*divide by 255"),
        (IMAGES + np.float32(np.nan), r"expected uint8 .*in \[0, 1\], got float32"),
        (IMAGES.astype(np.int64), r"expected uint8 .*got int64 \(2, 32, 32, 3\).*cast to uint8"),
        (torch.full((2, 32, 32, 3), -0.1), r"got torch.float32"),
        (IMAGES.transpose(0, 3, 1, 2)[:, :, :5], r"at least 8 pixels, got 5x32"),
        (IMAGES[:0], r"none of them 0, got \(0, 32, 32, 3\)"),
        (IMAGES[0], r"For one image add a first dimension"),
        (IMAGES[0, 0], r"got \(32, 3\)"),
        (IMAGES[..., :2], r"got \(2, 32, 32, 2\)"),
        (IMAGES[:, :7], r"at least 8 pixels, got 7x32"),
        (IMAGES.tolist(), r"got list"),
        (np.zeros((3, 32, 32), np.uint8), r"one channels-first picture or three grey ones.*images\[..., None\]"),
    ],
)
def test_bad_images_are_refused(images, complaint):
    with pytest.raises(InputError, match=complaint):
        corrupt(images, "fog")


@pytest.mark.parametrize("severity", [0, 6, -1, 2.0, True, "3", None])
def test_bad_severity_is_refused(severity):
    with pytest.raises(InputError, match="severity: expected a whole number from 1 to 5, got"):
        corrupt(IMAGES, "fog", severity)


def test_bad_names_are_refused_with_the_near_match():
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian_noise'"):
        corrupt(IMAGES, "gausian_noise")
    with pytest.raises(UnknownNameError, match="did you mean 'cifar'"):
        corrupt(IMAGES, "fog", table="cifar10")


def test_numbers_of_numpy_are_numbers():
    expected = corrupt(IMAGES + 99, "gaussian_noise", 3, seed=2)
    result = corrupt(IMAGES + 99, "gaussian_noise", np.int64(3), seed=np.uint8(2), first=np.int32(0))
    assert (result == expected).all()


@pytest.mark.parametrize(
    ("key", "value"), [("seed", 1.5), ("seed", None), ("seed", True), ("first", -1), ("first", "0")]
)
def test_bad_seed_and_first_are_refused(key, value):
    with pytest.raises(InputError, match=f"{key}: expected"):
        corrupt(IMAGES, "fog", **{key: value})


def test_work_is_done_in_chunks(monkeypatch):
    """Memory is bounded by the chunk: no corruption ever sees the whole set."""
    seen = []
    monkeypatch.setitem(apply.FUNCTIONS, "fog", lambda part, stream, values: seen.append(len(part)) or part.clone())
    corrupt(noise(300, 32, 32, 3), "fog")
    assert seen == [128, 128, 44]
    seen.clear()
    corrupt(noise(3, 500, 500, 1), "fog")
    assert seen == [1, 1, 1]


def forget_tables():
    """Empty every cache of the corruptions, so that the next call builds its tables again."""
    for module in {sys.modules[f.__module__] for f in apply.FUNCTIONS.values()} | {random, frost}:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_callers_default_device_changes_nothing(name):
    images = noise(2, 32, 32, 3)
    expected = corrupt(images, name, 4)
    forget_tables()
    try:
        with torch.device("meta"):  # what torch.set_default_device sets; a table made there holds no numbers
            result = corrupt(images, name, 4)
            if name == "frost":
                frost.procedural()
        assert (result == expected).all()
    finally:
        forget_tables()


def test_the_libraries_of_the_original_are_not_needed():
    """OpenCV, scikit-image, ImageMagick and SciPy are made impossible to import; everything still runs."""
    code = """
import os, sys, warnings
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("cv2", "skimage", "wand", "scipy"):
            raise AssertionError(name + " was imported")
sys.meta_path.insert(0, Refuse())
os.environ["STEEP_OFFLINE"] = "1"
warnings.simplefilter("ignore")
import numpy as np, steep.data
from steep.corruptions import CORRUPTIONS, corrupt
images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
print(sum(corrupt(images, name, 3).shape == images.shape for name in CORRUPTIONS))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "19", done.stderr
