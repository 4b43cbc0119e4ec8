"""The algorithms of the script that made ImageNet-C, picture by picture in NumPy, SciPy and Pillow, and its numbers.

`benchmarks/corruptions.py --against-original` measures steep against this, and the golden tests at 224 pixels compare
the two. Written from a description of the script (hendrycks/robustness, make_imagenet_c.py), sharing nothing with
steep. Where the script calls OpenCV or ImageMagick, NumPy and SciPy do the work; writing and reading PNGs on the way to
ImageMagick and opening a frost file for every picture, which the script does, are left out.
Random numbers come from `draws`, which has the methods of `Draws`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage, signal

Array = np.ndarray

# fmt: off
# Severity 1 to 5. Zoom: first, stop and step of the factors; elastic: pixels; pixelate: pixels of a side.
IMAGENET: dict[str, list[tuple[float, ...]]] = {
    "gaussian_noise": [(.08,), (.12,), (.18,), (.26,), (.38,)],
    "shot_noise": [(60,), (25,), (12,), (5,), (3,)],
    "impulse_noise": [(.03,), (.06,), (.09,), (.17,), (.27,)],
    "defocus_blur": [(3, .1), (4, .5), (6, .5), (8, .5), (10, .5)],
    "glass_blur": [(.7, 1, 2), (.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
    "motion_blur": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
    "zoom_blur": [(1, 1.11, .01), (1, 1.16, .01), (1, 1.21, .02), (1, 1.26, .02), (1, 1.31, .03)],
    "snow": [
        (.1, .3, 3, .5, 10, 4, .8), (.2, .3, 2, .5, 12, 4, .7), (.55, .3, 4, .9, 12, 8, .7),
        (.55, .3, 4.5, .85, 12, 8, .65), (.55, .3, 2.5, .85, 12, 12, .55),
    ],
    "frost": [(1, .4), (.8, .6), (.7, .7), (.65, .7), (.6, .75)],
    "fog": [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
    "brightness": [(.1,), (.2,), (.3,), (.4,), (.5,)],
    "contrast": [(.4,), (.3,), (.2,), (.1,), (.05,)],
    "elastic_transform": [
        (488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88),
    ],
    "pixelate": [(134,), (112,), (89,), (67,), (56,)],
    "jpeg_compression": [(25,), (18,), (15,), (10,), (7,)],
    "speckle_noise": [(.15,), (.2,), (.35,), (.45,), (.6,)],
    "gaussian_blur": [(1,), (2,), (3,), (4,), (6,)],
    "spatter": [
        (.65, .3, 4, .69, .6, 0), (.65, .3, 3, .68, .6, 0), (.65, .3, 2, .68, .5, 0),
        (.65, .3, 1, .65, 1.5, 1), (.67, .4, 1, .65, 1.5, 1),
    ],
    "saturate": [(.3, 0), (.1, 0), (2, 0), (5, .1), (20, .2)],
}
# fmt: on


class Draws:
    """NumPy's random numbers, drawn as the script draws them."""

    def __init__(self, seed: int, pictures: Sequence[Array]) -> None:
        self.random = np.random.RandomState(seed)
        self.pictures = pictures  # of frost

    def normal(self, *shape: int) -> Array:
        return self.random.normal(size=shape)

    def between(self, low: float, high: float, *shape: int) -> Any:
        return self.random.uniform(low, high, shape)

    def poisson(self, image: Array, photons: float) -> Array:
        return self.random.poisson(image / 255 * photons)

    def moves(self, shift: int, height: int, width: int) -> Array:
        """Return (2, H, W) integers; the script asks for the two of a pixel inside its loop over the pixels."""
        return np.array([self.random.randint(-shift, shift, size=2) for _ in range(height * width)]).T.reshape(
            2, height, width
        )

    def window(self, height: int, width: int) -> Array:
        """Cut a window from a frost picture."""
        picture = self.pictures[self.random.randint(5)]
        row, column = (
            self.random.randint(0, n - side) for n, side in zip(picture.shape, (height, width), strict=False)
        )
        return picture[row : row + height, column : column + width]


def finish(unit: Array) -> Array:
    return (np.clip(unit, 0, 1) * 255).astype(np.uint8)


def gauss(x: Array, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Array:
    return ndimage.gaussian_filter(x, (sigma, sigma, 0)[: x.ndim], mode=mode, truncate=truncate)


def gaussian_noise(x: Array, p: Sequence[float], draws: Any) -> Array:
    return finish(x / 255 + p[0] * draws.normal(*x.shape))


def speckle_noise(x: Array, p: Sequence[float], draws: Any) -> Array:
    return finish(x / 255 + x / 255 * p[0] * draws.normal(*x.shape))


def shot_noise(x: Array, p: Sequence[float], draws: Any) -> Array:
    return finish(draws.poisson(x, p[0]) / p[0])


def impulse_noise(x: Array, p: Sequence[float], draws: Any) -> Array:
    u = draws.between(0, 1, *x.shape)
    return np.where(u < p[0], np.where(u < p[0] / 2, np.uint8(255), np.uint8(0)), x)


def gaussian_blur(x: Array, p: Sequence[float], draws: Any) -> Array:
    return finish(gauss(x / 255, p[0]))


def disk(radius: float, alias: float) -> Array:
    """A disk on a grid of 17 (or more) squared, its edge smoothed; the smoothing mirrors at the rim of that grid."""
    reach, half = max(8, int(radius)), 1 if radius <= 8 else 2
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    inside = (x * x + y * y <= radius * radius).astype(float)
    bell = np.exp(-(np.arange(-half, half + 1) ** 2) / (2 * alias**2))
    return ndimage.correlate(inside / inside.sum(), np.outer(bell, bell) / bell.sum() ** 2, mode="mirror")


def defocus_blur(x: Array, p: Sequence[float], draws: Any) -> Array:
    kernel = disk(*p)[..., None]
    reach = len(kernel) // 2
    padded = np.pad(x / 255, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    return finish(signal.fftconvolve(padded, kernel, mode="valid", axes=(0, 1)))  # the kernel is symmetric


def glass_blur(x: Array, p: Sequence[float], draws: Any) -> Array:
    sigma, shift, iterations = p[0], int(p[1]), int(p[2])
    height, width = x.shape[:2]
    x = (gauss(x / 255, sigma) * 255).astype(np.uint8)
    for _ in range(iterations):
        dx, dy = draws.moves(shift, height, width)
        for h in range(height - shift, shift, -1):
            for w in range(width - shift, shift, -1):
                x[h, w] = x[h + dy[h, w], w + dx[h, w]]
    return finish(gauss(x / 255, sigma))


def drag(x: Array, angle: float, radius: float, sigma: float) -> Array:
    """Motion blur of one uint8 plane or picture, as ImageMagick does it."""
    reach = 2 * math.ceil(radius)
    weights = np.exp(-(np.arange(reach + 1) ** 2) / (2 * sigma * sigma))
    padded = np.pad(x, [(reach, reach), (reach, reach), (0, 0)][: x.ndim], mode="edge").astype(float)
    total = np.zeros(x.shape)
    for i, weight in enumerate(weights / weights.sum()):
        dx = reach + math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        dy = reach + math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        total += weight * padded[dy : dy + x.shape[0], dx : dx + x.shape[1]]
    return np.floor(np.round(257 * total) / 257).astype(np.uint8)


def motion_blur(x: Array, p: Sequence[float], draws: Any) -> Array:
    return drag(x, draws.between(-45, 45), *p)


def clipped_zoom(x: Array, factor: float) -> Array:
    side = len(x)
    inner = math.ceil(side / factor)
    top = (side - inner) // 2
    zoomed = ndimage.zoom(x[top : top + inner, top : top + inner], (factor, factor, 1)[: x.ndim], order=1)
    trim = (len(zoomed) - side) // 2
    return zoomed[trim : trim + side, trim : trim + side]


def zoom_blur(x: Array, p: Sequence[float], draws: Any) -> Array:
    unit, factors = (x / 255).astype(np.float32), np.arange(*p)
    return finish((unit + sum(clipped_zoom(unit, factor) for factor in factors)) / (len(factors) + 1))


def snow(x: Array, p: Sequence[float], draws: Any) -> Array:
    mean, std, zoom, threshold, radius, sigma, mix = p
    layer = clipped_zoom(mean + std * draws.normal(*x.shape[:2]), zoom)
    layer[layer < threshold] = 0
    layer = drag(finish(layer), draws.between(-135, -45), radius, sigma)[..., None] / 255
    unit = x / 255
    grey = (unit @ np.array([0.299, 0.587, 0.114]))[..., None]
    unit = mix * unit + (1 - mix) * np.maximum(unit, grey * 1.5 + 0.5)
    return finish(unit + layer + np.rot90(layer, 2))


def frost(x: Array, p: Sequence[float], draws: Any) -> Array:
    return np.clip(p[0] * x + p[1] * draws.window(*x.shape[:2]), 0, 255).astype(np.uint8)


def cloud(side: int, decay: float, draws: Any) -> Array:
    """Diamond-square on a torus, in place on views with a stride."""
    grid, step, wibble = np.zeros((side, side)), side, 100.0
    while step >= 2:
        half, count = step // 2, side // step
        corner, centre = grid[::step, ::step], grid[half::step, half::step]
        top, left = grid[::step, half::step], grid[half::step, ::step]
        pair = corner + np.roll(corner, -1, 0)
        centre[:] = (pair + np.roll(pair, -1, 1)) / 4 + wibble * wibble * draws.between(-1, 1, count, count)
        for middle, across, along in ((top, 0, 1), (left, 1, 0)):
            total = centre + np.roll(centre, 1, across) + corner + np.roll(corner, -1, along)
            middle[:] = total / 4 + wibble * wibble * draws.between(-1, 1, count, count)
        step, wibble = half, wibble / decay
    grid -= grid.min()
    return grid / grid.max()


def fog(x: Array, p: Sequence[float], draws: Any) -> Array:
    height, width = x.shape[:2]
    plane = cloud(1 << (max(height, width) - 1).bit_length(), p[1], draws)[:height, :width, None]
    brightest = x.max() / 255
    return finish((x / 255 + p[0] * plane) * brightest / (brightest + p[0]))


def hsv(x: Array) -> Array:
    """Hue, saturation and value of a unit-range picture."""
    value, spread = x.max(2), np.ptp(x, axis=2)
    safe = np.where(spread == 0, 1, spread)
    r, g, b = np.moveaxis(x, 2, 0)
    hue = np.select([value == r, value == g], [(g - b) / safe % 6, 2 + (b - r) / safe], 4 + (r - g) / safe) / 6
    return np.stack([np.where(spread == 0, 0, hue), spread / np.where(value == 0, 1, value), value], 2)


def rgb(x: Array) -> Array:
    """Back from hue, saturation and value: each channel is V less S V times how far its hue is."""
    hue, saturation, value = np.moveaxis(x, 2, 0)
    place = [(hue * 6 + offset) % 6 for offset in (5, 3, 1)]
    return np.stack([value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1) for k in place], 2)


def brightness(x: Array, p: Sequence[float], draws: Any) -> Array:
    colours = hsv(x / 255)
    colours[..., 2] = np.clip(colours[..., 2] + p[0], 0, 1)
    return finish(rgb(colours))


def saturate(x: Array, p: Sequence[float], draws: Any) -> Array:
    colours = hsv(x / 255)
    colours[..., 1] = np.clip(colours[..., 1] * p[0] + p[1], 0, 1)
    return finish(rgb(colours))


def contrast(x: Array, p: Sequence[float], draws: Any) -> Array:
    mean = (x / 255).mean((0, 1), keepdims=True)
    return finish((x / 255 - mean) * p[0] + mean)


def warp_affine(x: Array, matrix: Array) -> Array:
    """OpenCV's warpAffine: bilinear between places rounded to 1/32 pixel, mirrored without repeating the edge."""
    (a, b, c), (d, e, f) = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))[:2]
    down, across = np.arange(len(x))[:, None], np.arange(x.shape[1])
    places = []
    for by_row, by_column in (((e * down + f), d * across), ((b * down + c), a * across)):
        places.append((np.rint(by_row * 1024).astype(int) + np.rint(by_column * 1024).astype(int) + 16 >> 5) / 32)
    return np.stack(
        [ndimage.map_coordinates(plane, places, order=1, mode="mirror") for plane in np.moveaxis(x, 2, 0)], 2
    )


def elastic_transform(x: Array, p: Sequence[float], draws: Any) -> Array:
    alpha, sigma, jitter = p
    side = len(x)
    low, high = side // 2 - side // 3, side // 2 + side // 3
    source = np.array([[high, high], [high, low], [low, low]], float)
    target = (source + jitter * draws.between(-1, 1, 3, 2)).astype(np.float32).astype(float)
    matrix = np.linalg.solve(np.hstack([source, np.ones((3, 1))]), target).T
    warped = warp_affine((x / 255).astype(np.float32), matrix)
    noise = draws.between(-1, 1, 2, side, side)
    dx, dy = (alpha * gauss(field, sigma, mode="reflect", truncate=3.0) for field in noise)
    down, across = np.mgrid[:side, :side]
    places = [down + dy, across + dx]
    planes = [ndimage.map_coordinates(plane, places, order=1, mode="reflect") for plane in np.moveaxis(warped, 2, 0)]
    return finish(np.stack(planes, 2))


def pixelate(x: Array, p: Sequence[float], draws: Any) -> Array:
    small = Image.fromarray(x).resize((int(p[0]), int(p[0])), Image.Resampling.BOX)
    return np.asarray(small.resize(x.shape[1::-1], Image.Resampling.BOX))


def jpeg_compression(x: Array, p: Sequence[float], draws: Any) -> Array:
    buffer = io.BytesIO()
    Image.fromarray(x).save(buffer, "JPEG", quality=int(p[0]))
    return np.asarray(Image.open(buffer))
