"""Reference versions of the corruptions: one image, plain numpy and scipy, float64, loops.

Written from the description of the benchmark for the tests alone, and sharing no code with steep: numbers
come from tables of their own (`golden_tables.py`), random draws are passed in.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
from scipy import ndimage


def finish(unit):
    """Clip the unit range and truncate to uint8, as the original does."""
    return (np.clip(unit, 0, 1) * 255).astype(np.uint8)


def gauss(x, sigma, mode="nearest", truncate=4.0):
    sigmas = (sigma, sigma, 0) if x.ndim == 3 else sigma
    return ndimage.gaussian_filter(x, sigmas, mode=mode, truncate=truncate) if sigma else x


def gaussian_noise(x, p, z):
    return finish(x / 255 + p[0] * z)


def speckle_noise(x, p, z):
    return finish(x / 255 + x / 255 * p[0] * z)


def shot_noise(x, p, counts):
    return finish(counts / p[0])


def impulse_noise(x, p, u):
    out = x.copy()
    for place in np.ndindex(x.shape):
        if u[place] < p[0]:
            out[place] = 255 if u[place] < p[0] / 2 else 0
    return out


def gaussian_blur(x, p):
    return finish(gauss(x / 255, p[0]))


def defocus_kernel(radius, alias):
    reach = range(-8, 9)
    disk = np.array([[float(i * i + j * j <= radius * radius) for j in reach] for i in reach])
    disk /= disk.sum()
    bell = np.exp(-(np.arange(-1, 2) ** 2) / (2 * alias**2))
    bell /= bell.sum()
    return ndimage.correlate(disk, np.outer(bell, bell), mode="constant")


def defocus_blur(x, p):
    kernel = defocus_kernel(*p)
    return finish(np.stack([ndimage.correlate(x[..., c] / 255, kernel, mode="mirror") for c in range(x.shape[2])], 2))


def glass_blur(x, p, moves):
    """moves: per iteration (2, H, W): dx, dy."""
    sigma, shift, iterations = p
    height, width = x.shape[:2]
    x = (gauss(x / 255, sigma) * 255).astype(np.uint8)
    for i in range(int(iterations)):
        for h in range(height - shift, shift, -1):
            for w in range(width - shift, shift, -1):
                dx, dy = moves[i][0, h, w], moves[i][1, h, w]
                x[h, w] = x[h + dy, w + dx]
    return finish(gauss(x / 255, sigma))


def drag(x, angle, radius, sigma):
    """Motion blur of one uint8 plane or image."""
    height, width = x.shape[:2]
    count = 2 * math.ceil(radius) + 1
    weights = [math.exp(-i * i / (2 * sigma * sigma)) for i in range(count)]
    total = np.zeros(x.shape)
    for i, weight in enumerate(weights):
        dx = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        dy = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        rows = np.clip(np.arange(height) + dy, 0, height - 1)
        columns = np.clip(np.arange(width) + dx, 0, width - 1)
        total += weight / sum(weights) * x[rows][:, columns]
    return np.floor(np.round(257 * total) / 257).astype(np.uint8)


def motion_blur(x, p, angle):
    return drag(x, angle, *p)


def clipped_zoom(x, factor):
    """Linear zoom into the centre, output pixel by output pixel."""
    size = x.shape[0]
    kept = math.ceil(size / factor)
    top = (size - kept) // 2
    part = x[top : top + kept, top : top + kept]
    zoomed = round(kept * factor)
    trim = (zoomed - size) // 2
    out = np.empty(x.shape)
    for i in range(size):
        for j in range(size):
            y, w = (k * (kept - 1) / (zoomed - 1) for k in (i + trim, j + trim))
            y0, w0 = min(int(y), kept - 2), min(int(w), kept - 2)
            fy, fw = y - y0, w - w0
            upper = part[y0, w0] * (1 - fw) + part[y0, w0 + 1] * fw
            lower = part[y0 + 1, w0] * (1 - fw) + part[y0 + 1, w0 + 1] * fw
            out[i, j] = upper * (1 - fy) + lower * fy
    return out


def zoom_blur(x, factors):
    total = x / 255
    for factor in factors:
        total = total + clipped_zoom(x / 255, factor)
    return finish(total / (len(factors) + 1))


def snow(x, p, z, angle):
    mean, std, zoom, threshold, radius, sigma, mix = p
    layer = clipped_zoom(mean + std * z, zoom)
    layer[layer < threshold] = 0
    layer = drag(finish(layer), angle, radius, sigma)[..., None] / 255
    unit = x / 255
    grey = (unit @ np.array([0.299, 0.587, 0.114]))[..., None]
    unit = mix * unit + (1 - mix) * np.maximum(unit, grey * 1.5 + 0.5)
    return finish(unit + layer + np.rot90(layer, 2))


def frost(x, p, window):
    return np.clip(p[0] * x + p[1] * window, 0, 255).astype(np.uint8)


def plasma(side, decay, uniform):
    """Diamond-square on a torus; uniform(k) gives the next (k, k) numbers in [-1, 1)."""
    grid = np.zeros((side, side))
    step, wibble = side, 100.0
    while step >= 2:
        half, count = step // 2, side // step
        noise = [uniform(count) * wibble * wibble for _ in range(3)]
        for i in range(count):
            for j in range(count):
                y, x = i * step, j * step
                corners = [grid[(y + a) % side, (x + b) % side] for a in (0, step) for b in (0, step)]
                grid[y + half, x + half] = sum(corners) / 4 + noise[0][i, j]
        for i in range(count):
            for j in range(count):
                y, x = i * step, j * step
                sides = grid[y, x] + grid[y, (x + step) % side]
                grid[y, x + half] = (sides + grid[y + half, x + half] + grid[y - half, x + half]) / 4 + noise[1][i, j]
                sides = grid[y, x] + grid[(y + step) % side, x]
                grid[y + half, x] = (sides + grid[y + half, x + half] + grid[y + half, x - half]) / 4 + noise[2][i, j]
        step, wibble = half, wibble / decay
    grid -= grid.min()
    return grid / grid.max()


def fog(x, p, cloud):
    strength = p[0]
    brightest = x.max() / 255
    return finish((x / 255 + strength * cloud[..., None]) * brightest / (brightest + strength))


def brightness(x, p):
    out = np.empty(x.shape)
    for place in np.ndindex(x.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*(float(c) / 255 for c in x[place]))
        out[place] = colorsys.hsv_to_rgb(h, s, min(max(v + p[0], 0), 1))
    return finish(out)


def saturate(x, p):
    out = np.empty(x.shape)
    for place in np.ndindex(x.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*(float(c) / 255 for c in x[place]))
        out[place] = colorsys.hsv_to_rgb(h, min(max(s * p[0] + p[1], 0), 1), v)
    return finish(out)


def contrast(x, p):
    unit = x / 255
    mean = unit.mean((0, 1), keepdims=True)
    return finish((unit - mean) * p[0] + mean)


def mirrored(i, size):
    """d c b | a b c d | c b a"""
    while not 0 <= i < size:
        i = -i if i < 0 else 2 * (size - 1) - i
    return i


def warp_affine(x, matrix):
    """OpenCV's warpAffine for a matrix source -> target: bilinear in 1/32 pixel, mirrored borders."""
    height, width = x.shape[:2]
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))[:2]
    out = np.empty(x.shape)
    for i in range(height):
        for j in range(width):
            place = []
            for row in inverse:
                fixed = int(np.rint(row[0] * j * 1024)) + int(np.rint((row[1] * i + row[2]) * 1024)) + 16
                place.append(fixed >> 5)
            (x0, fx), (y0, fy) = ((q >> 5, (q & 31) / 32) for q in place)
            (xa, xb), (ya, yb) = ((mirrored(a, n), mirrored(a + 1, n)) for a, n in ((x0, width), (y0, height)))
            upper = x[ya, xa] * (1 - fx) + x[ya, xb] * fx
            lower = x[yb, xa] * (1 - fx) + x[yb, xb] * fx
            out[i, j] = upper * (1 - fy) + lower * fy
    return out


def elastic_transform(x, p, moves, noise):
    """p in pixels; moves (3, 2) and noise (2, H, W) in [-1, 1)."""
    alpha, sigma, jitter = p
    side = x.shape[0]
    low, high = side // 2 - side // 3, side // 2 + side // 3
    source = np.array([[high, high], [high, low], [low, low]], np.float64)
    target = (source + jitter * moves).astype(np.float32).astype(np.float64)
    # Solve M [x y 1]' = target for the three points.
    matrix = np.linalg.solve(np.hstack([source, np.ones((3, 1))]), target).T
    warped = warp_affine(x / 255, matrix)
    if alpha == 0:
        return finish(warped)
    dx, dy = (alpha * gauss(field, sigma, mode="reflect", truncate=3.0) for field in noise)
    rows, columns = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    sampled = [
        ndimage.map_coordinates(warped[..., c], [rows + dy, columns + dx], order=1, mode="reflect")
        for c in range(x.shape[2])
    ]
    return finish(np.stack(sampled, 2))


def canny(x, low, high):
    height, width = x.shape
    gx, gy = (ndimage.sobel(x.astype(int), axis, mode="nearest") for axis in (1, 0))
    size = np.pad(abs(gx) + abs(gy), 1)
    peak = np.zeros((height, width), bool)
    for i, j in np.argwhere(size[1:-1, 1:-1] > low):
        m, a, b = size[i + 1, j + 1], abs(gx[i, j]), abs(gy[i, j]) << 15
        if b < a * 13573:
            peak[i, j] = m > size[i + 1, j] and m >= size[i + 1, j + 2]
        elif b > a * 13573 + (a << 16):
            peak[i, j] = m > size[i, j + 1] and m >= size[i + 2, j + 1]
        else:
            s = -1 if (gx[i, j] < 0) != (gy[i, j] < 0) else 1
            peak[i, j] = m > size[i, j + 1 - s] and m > size[i + 2, j + 1 + s]
    edges = peak & (size[1:-1, 1:-1] > high)
    stack = list(zip(*np.nonzero(edges), strict=True))
    while stack:
        i, j = stack.pop()
        for k in range(max(i - 1, 0), min(i + 2, height)):
            for m in range(max(j - 1, 0), min(j + 2, width)):
                if peak[k, m] and not edges[k, m]:
                    edges[k, m] = True
                    stack.append((k, m))
    return edges


def chamfer(edges, cap):
    """Distance to the nearest edge in steps of 1, 1.4 and 2.1969: the closed form of the metric, per edge."""
    height, width = edges.shape
    one, diagonal, knight = (round(65536 * d) for d in (1.0, 1.4, 2.1969))
    best = np.full((height, width), cap << 16)
    rows, columns = np.mgrid[-cap : cap + 1, -cap : cap + 1]
    far, near = np.maximum(abs(rows), abs(columns)), np.minimum(abs(rows), abs(columns))
    flat = near * knight + (far - 2 * near) * one
    slanted = (far - near) * knight + (2 * near - far) * diagonal
    around = np.where(2 * near <= far, flat, slanted)
    best = np.pad(best, cap)
    for i, j in zip(*np.nonzero(edges), strict=True):
        window = best[i : i + 2 * cap + 1, j : j + 2 * cap + 1]
        np.minimum(window, around, out=window)
    return best[cap:-cap, cap:-cap] / 65536


def equalize(x):
    histogram = np.bincount(x.ravel(), minlength=256)
    lowest = np.flatnonzero(histogram)[0]
    if histogram[lowest] == x.size:
        return x
    scale = np.float32(255) / np.float32(x.size - histogram[lowest])
    table, total = np.zeros(256, np.uint8), 0
    for level in range(lowest + 1, 256):
        total += histogram[level]
        table[level] = np.clip(np.rint(np.float32(total) * scale), 0, 255)
    return table[x]


def spatter(x, p, z):
    mean, std, sigma, threshold, strength, kind = p
    liquid = gauss((mean + std * z).astype(np.float32), sigma)
    liquid[liquid < threshold] = 0
    if kind == 1:
        mask = gauss((liquid > threshold).astype(np.float32), strength)
        mask[mask < 0.8] = 0
        return finish(x / 255 * (1 - mask[..., None]) + mask[..., None] * np.array([63, 42, 20]) / 255)
    thickness = (liquid * 255).astype(int) % 256  # uint8 wraps around, as in the original
    distance = chamfer(canny(thickness, 50, 150), 20)
    box = np.full((3, 3), 1.0)
    distance = np.floor(ndimage.correlate(distance, box, mode="mirror") / 9 + 1e-9).astype(np.uint8)
    distance = equalize(distance).astype(float)
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], float)
    distance = np.clip(ndimage.correlate(distance, kernel, mode="mirror"), 0, 255)
    distance = np.rint(ndimage.correlate(distance, box, mode="mirror") / 9)
    mask = thickness * distance
    mask = mask / max(mask.max(), 1) * strength
    return finish(x / 255 + mask[..., None] * np.array([175, 238, 238]) / 255)
