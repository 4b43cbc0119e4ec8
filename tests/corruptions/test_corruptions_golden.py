"""Golden tests: every corruption against a reference that shares nothing with it but the random draws."""

from __future__ import annotations

import io

import golden_tables
import naive
import numpy as np
import pytest
from PIL import Image

from steep.corruptions import CORRUPTIONS, corrupt, frost
from steep.corruptions.random import Stream

SEED, FIRST = 7, 40  # not zero, so that both are seen to count


def references(name, severity, images):
    """Corrupt each image with the naive version, fed with the draws of its own stream."""
    n, side = len(images), images.shape[1]
    p = golden_tables.ZOOM[severity - 1] if name == "zoom_blur" else golden_tables.TABLES[side][name][severity - 1]
    stream = Stream(SEED, name, severity, FIRST, n)
    if name in ("gaussian_noise", "speckle_noise"):
        draws = zip(stream.normal(side, side, 3).double().numpy())
    elif name == "shot_noise":
        import torch

        draws = zip(stream.poisson(torch.from_numpy(images), float(p[0])).numpy())
    elif name == "impulse_noise":
        draws = zip(stream.uniform(side, side, 3).numpy())
    elif name == "glass_blur":
        passes = [stream.integers(-p[1], p[1], 2, side, side).numpy() for _ in range(p[2])]
        draws = zip(zip(*passes, strict=True))
    elif name == "motion_blur":
        draws = zip(stream.between(-45, 45).double().numpy())
    elif name == "snow":
        draws = zip(stream.normal(side, side).double().numpy(), stream.between(-135, -45).double().numpy(), strict=True)
    elif name == "frost":
        draws = zip(windows(stream, side))
    elif name == "fog":
        levels = [
            stream.between(-1, 1, 1 << k, 1 << k).double().numpy() for k in range(side.bit_length() - 1) for _ in "abc"
        ]
        draws = []
        for i in range(n):
            queue = [level[i] for level in levels]
            draws.append((naive.plasma(side, p[1], lambda count, queue=queue: queue.pop(0)),))
    elif name == "elastic_transform":
        moves = stream.between(-1, 1, 3, 2).double().numpy()
        draws = zip(moves, stream.between(-1, 1, 2, side, side).double().numpy(), strict=True)
    elif name == "spatter":
        draws = zip(stream.normal(side, side).numpy())
    else:
        draws = [()] * n
    function = {"pixelate": pillow_pixelate, "jpeg_compression": pillow_jpeg}.get(name) or getattr(naive, name)
    return np.stack([function(image, p, *draw) for image, draw in zip(images, draws, strict=True)])


def windows(stream, side):
    """Cut the frost windows of a stream from the pictures, shrunk the slow way."""
    index = stream.integers(0, 5).numpy()
    spots = stream.uniform(2).double().numpy()
    scale = {32: 0.2, 64: 0.3}[side]
    for k, (u, v) in zip(index, spots, strict=True):
        small = opencv_resize(frost._pictures()[1][k], scale)
        row, column = int(u * (small.shape[0] - side)), int(v * (small.shape[1] - side))
        yield small[row : row + side, column : column + side]


def opencv_resize(picture, scale):
    """Bilinear without antialiasing; at 20 % that is every fifth pixel from index 2 on."""
    if scale == 0.2:
        height, width = (round(n * scale) for n in picture.shape[:2])
        return picture[2::5, 2::5][:height, :width]
    out = picture.astype(float)
    for axis in (0, 1):
        size = out.shape[axis]
        at = (np.arange(round(size * scale)) + 0.5) / scale - 0.5
        out = np.apply_along_axis(lambda line, at=at, size=size: np.interp(at, np.arange(size), line), axis, out)
    return np.floor(out + 0.5)


def pillow_pixelate(image, p):
    side = image.shape[0]
    small = Image.fromarray(image).resize((p[0], p[0]), Image.Resampling.BOX)
    return np.asarray(small.resize((side, side), Image.Resampling.BOX))


def pillow_jpeg(image, p):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=p[0])
    return np.asarray(Image.open(buffer))


EXACT = ("shot_noise", "impulse_noise", "pixelate", "jpeg_compression")
# Here whole levels are common results (a mean of five pixels, half a distance): which way they are truncated is
# decided by the last bit of a sum, in the original as well.
TIES = ("defocus_blur", "saturate", "glass_blur")


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize(("side", "count"), [(32, 3), (64, 1)])
def test_agrees_with_the_naive_version(name, severity, side, count, natural):
    images = natural(side, count)
    ours = corrupt(images, name, severity, SEED, first=FIRST).astype(int)
    apart = abs(ours - references(name, severity, images).astype(int))
    if name in EXACT:
        assert apart.max() == 0
    assert (apart <= 1).mean() >= 0.999
    assert (apart == 0).mean() >= (0.8 if name in TIES else 0.98), "equal on too few values"


@pytest.mark.parametrize("severity", range(1, 6))
def test_parameters_are_those_of_the_benchmark(severity):
    from steep.corruptions.parameters import lookup

    for side, table in golden_tables.TABLES.items():
        for name, rows in table.items():
            ours = lookup(name, severity, side, side)
            if name == "elastic_transform":
                ours = tuple(side * v for v in ours)
            if name == "pixelate":
                ours = (int(side * ours[0]),)
            assert ours == pytest.approx(rows[severity - 1])


def test_defocus_kernels_have_their_closed_forms():
    from steep.corruptions.blur import disk

    plus = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]) / 5
    for row, centre, edge, corner in (
        (0, 0.845, 0.0371, 0.0016),
        (1, 0.619, 0.0838, 0.0113),
        (2, 0.445, 0.111, 0.0277),
    ):
        kernel = np.array(disk(*golden_tables.CIFAR["defocus_blur"][row]))
        assert kernel == pytest.approx(
            np.array([[corner, edge, corner], [edge, centre, edge], [corner, edge, corner]]), abs=1e-3
        )
    kernel = np.array(disk(*golden_tables.CIFAR["defocus_blur"][3]))
    middle = len(kernel) // 2
    assert kernel[middle - 1 : middle + 2, middle - 1 : middle + 2] == pytest.approx(plus, abs=1e-4)
    assert np.array(disk(1.5, 0.1)) == pytest.approx(np.full((3, 3), 1 / 9))
    assert np.count_nonzero(disk(2.5, 0.01)) == 21
    assert np.count_nonzero(disk(3, 0.1)) == 29


@pytest.mark.parametrize(
    "name", ["defocus_blur", "gaussian_blur", "zoom_blur", "motion_blur", "glass_blur", "elastic_transform", "pixelate"]
)
def test_flat_pictures_stay_flat(name):
    flat = np.repeat(np.arange(256, dtype=np.uint8), 32 * 32 * 3).reshape(256, 32, 32, 3)
    for severity in range(1, 6):
        assert (corrupt(flat, name, severity) == flat).all()


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_glass_copies_equal_the_sequential_loop(shift):
    import torch

    from steep.corruptions.blur import copy_sources

    rng = np.random.default_rng(shift)
    height, width = 24, 17
    moves = rng.integers(-shift, shift, (5, 2, height, width))
    sources = copy_sources(torch.from_numpy(moves[:, 0]), torch.from_numpy(moves[:, 1]), shift).numpy()
    for (dx, dy), source in zip(moves, sources, strict=True):
        x = np.arange(height * width).reshape(height, width)
        for h in range(height - shift, shift, -1):
            for w in range(width - shift, shift, -1):
                x[h, w] = x[h + dy[h, w], w + dx[h, w]]
        assert (source == x.ravel()).all()
