"""Views of images: changes that leave the class as it is, for methods that want an answer to survive them.

Each image has its own draw, from the method's own generator, and all of them are changed together on the device. Where
ranks share a batch, the numbers are drawn for the whole of it, so that an image's view is the same on any rank.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate

from steep.core.batch import part, size
from steep.errors import InputError

GREY = (0.2989, 0.587, 0.114)  # how much red, green and blue weigh in brightness
TAPS = 5  # of the blur
MIDDLE = 128 / 255  # the grey beyond the edge of an image that AugMix has moved
CHAINS, LONGEST = 3, 3  # of changes, in a view of AugMix
NUMBERS = 7 + CHAINS * (1 + 3 * LONGEST)  # that a view of AugMix is made from


@torch.no_grad()
def view(x: Tensor, generator: torch.Generator, *, edge: str = "border", blurred: bool = False, mirror: bool) -> Tensor:
    """Give one view of each image (B, C, H, W): other colours, moved a little, perhaps mirrored.

    The strengths are those of KATANA (arXiv:2109.08191), which CoTTA took over. Beyond the edge of an image, its last
    pixel goes on ("border") or the image is mirrored ("reflection"). A `blurred` view is also a little noisy.
    Images in [0, 1] stay there; of others, the range of each image is kept.
    """
    if x.ndim != 4:
        raise InputError(f"images: expected (B, C, H, W) for augmented views, got {tuple(x.shape)}")
    u = part(torch.rand((size(x), 10), generator=generator, device=x.device, dtype=x.dtype))
    low, span = _range(x)
    x = jitter((x - low) / span, _between(u[:, :5], (0.6, 1.4), (0.7, 1.3), (0.5, 1.5), (-0.06, 0.06), (0.7, 1.3)))
    x = move(x, _affine(u[:, 5:9], x.shape[-2:]), edge=edge, margin=TAPS // 2 if blurred else 0)
    if blurred:
        sigma = torch.rand((size(x), 1), generator=generator, device=x.device, dtype=x.dtype)
        x = blur(x, part(0.001 + 0.499 * sigma))
        noise = torch.randn((size(x), *x.shape[1:]), generator=generator, device=x.device, dtype=x.dtype)
        x = x + 0.005 * part(noise)
    if mirror:
        x = torch.where((u[:, 9] < 0.5).view(-1, 1, 1, 1), x.flip(-1), x)
    return x.clamp(0, 1) * span + low


@torch.no_grad()
def augmix(x: Tensor, u: Tensor, *, mirror: bool) -> Tensor:
    """Give views (B, V, C, H, W) of images, by uniform numbers (B, V, NUMBERS): AugMix (arXiv:1912.02781).

    A view is the image, shifted and perhaps mirrored, mixed with three chains of one to three changes each: contrast
    or histogram made even, turned, solarised, sheared, shifted, posterised. The strengths are those of MEMO's code.
    """
    if x.ndim != 4:
        raise InputError(f"images: expected (B, C, H, W) for augmented views, got {tuple(x.shape)}")
    shape = (*u.shape[:2], *x.shape[1:])
    x, low, span = (_repeated(each, u.shape[1]) for each in (x, *_range(x)))
    x, u = (x - low) / span, u.flatten(0, 1)
    most = [round(side / 8) for side in reversed(shape[-2:])]
    across, down = ((u[:, i] * (2 * m + 1)).floor() - m for i, m in enumerate(most))
    x = move(x, _matrix(across, down=down), edge="zeros")
    if mirror:
        x = torch.where((u[:, 2] < 0.5).view(-1, 1, 1, 1), x.flip(-1), x)
    chains = _repeated(x, CHAINS)
    lengths = u[:, 7 : 7 + CHAINS].reshape(-1) * LONGEST  # a chain of length l has changes 0 to floor(l)
    draws = u[:, 7 + CHAINS :].reshape(len(chains), LONGEST, 3)
    for i in range(LONGEST):
        chains = torch.where((lengths >= i).view(-1, 1, 1, 1), change(chains, *draws[:, i].unbind(dim=1)), chains)
    shares = -torch.log1p(-u[:, 4:7])  # exponential numbers, divided by their sum, are uniform shares
    shares = (shares / shares.sum(dim=1, keepdim=True).clamp_min(1e-12)).view(-1, CHAINS, 1, 1, 1)
    mixed = (shares * chains.view(len(x), CHAINS, *shape[2:])).sum(dim=1)
    return (torch.lerp(mixed, x, u[:, 3].view(-1, 1, 1, 1)) * span + low).view(shape)


def change(x: Tensor, kind: Tensor, strength: Tensor, sign: Tensor) -> Tensor:
    """Change each image of [0, 1] in one of nine ways, by uniform numbers (B,)."""
    height, width = x.shape[-2:]
    kind, level = (9 * kind).floor(), 0.1 + 0.9 * strength
    signed = torch.where(sign < 0.5, level, -level)
    degrees, right, down = ((signed * most / 10).trunc() for most in (30, width / 3, height / 3))

    def only(number: int, values: Tensor) -> Tensor:
        return torch.where(kind == number, values, 0)

    matrix = _matrix(
        only(6, right), only(2, degrees) * math.pi / 180, only(4, 0.03 * signed), only(5, 0.03 * signed), only(7, down)
    )
    moved = (move(x - MIDDLE, matrix, edge="zeros") + MIDDLE).clamp(0, 1)
    bright = x >= 1 - (25.6 * level).floor().view(-1, 1, 1, 1) / 256
    least, most = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    results = {
        0: torch.where(most > least, (x - least) / torch.where(most > least, most - least, 1), x),
        1: even_histogram(x),
        3: torch.where(bright, 1 - x, x),
        8: (255 * x / 16).floor() * 16 / 255,
    }
    for number, result in results.items():
        moved = torch.where((kind == number).view(-1, 1, 1, 1), result, moved)
    return moved


def even_histogram(x: Tensor) -> Tensor:
    """Let the 256 levels of each channel be about equally frequent, as PIL's `ImageOps.equalize` does."""
    levels = (255 * x).round().clamp(0, 255).flatten(2)  # (B, C, H · W)
    every = torch.arange(256, device=x.device, dtype=x.dtype).expand(*x.shape[:2], 256).contiguous()
    upto = torch.searchsorted(levels.sort(dim=2).values, every, right=True)  # how many pixels are at most so bright
    below = torch.cat([torch.zeros_like(upto[..., :1]), upto[..., :-1]], dim=2)
    brightest = levels.amax(dim=2, keepdim=True).long()
    step = torch.div(below.gather(2, brightest), 255, rounding_mode="floor")
    table = torch.div(below + torch.div(step, 2, rounding_mode="floor"), step.clamp_min(1), rounding_mode="floor")
    even = table.clamp(0, 255).gather(2, levels.long()).to(x.dtype) / 255
    return torch.where((step > 0)[..., None], even.view(x.shape), x)


@torch.no_grad()
def shuffled(x: Tensor, patches: int, generator: torch.Generator) -> Tensor:
    """Cut each image (B, C, H, W) into patches × patches and put them into an order of its own.

    Sides that do not divide are shrunk to the next that do, and stretched back at the end. An image of fewer pixels
    has as many patches as it has pixels along its shorter side.
    """
    if x.ndim != 4:
        raise InputError(f"images: expected (B, C, H, W) to shuffle patches of, got {tuple(x.shape)}")
    (b, c, *sides), n = x.shape, min(patches, *x.shape[2:])
    height, width = (side // n * n for side in sides)
    cut = _resized(x, [height, width]).view(b, c, n, height // n, n, width // n).permute(0, 2, 4, 1, 3, 5)
    order = torch.rand((size(x), n * n), generator=generator, device=x.device).argsort(dim=1)
    mixed = cut.flatten(1, 2)[torch.arange(b, device=x.device)[:, None], part(order)]
    mixed = mixed.view(b, n, n, c, height // n, width // n).permute(0, 3, 1, 4, 2, 5)
    return _resized(mixed.reshape(b, c, height, width), sides)


def jitter(x: Tensor, strength: Tensor) -> Tensor:
    """Change brightness, contrast, saturation, hue and gamma of images in [0, 1], by (B, 5) strengths in that order."""
    brightness, contrast, saturation, hue, gamma = strength.view(len(x), 5, 1, 1, 1).unbind(dim=1)
    x = (x * brightness).clamp(0, 1)
    x = torch.lerp(_grey(x).mean(dim=(1, 2, 3), keepdim=True), x, contrast).clamp(0, 1)
    if x.shape[1] == 3:
        x = torch.lerp(_grey(x), x, saturation).clamp(0, 1)
        x = turn_hue(x, hue)
    return x.clamp(1e-8, 1) ** gamma


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of RGB images by a share of the colour circle; value and saturation (HSV) stay."""
    value, chroma = x.amax(dim=1, keepdim=True), x.amax(dim=1, keepdim=True) - x.amin(dim=1, keepdim=True)
    r, g, b = (x[:, i : i + 1] for i in range(3))
    safe = torch.where(chroma == 0, 1, chroma)
    sixth = torch.where(value == r, (g - b) / safe, torch.where(value == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    k = (torch.cat([sixth + 5, sixth + 3, sixth + 1], dim=1) + 6 * turn) % 6
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def move(x: Tensor, matrix: Tensor, *, edge: str, margin: int = 0) -> Tensor:
    """Fill each pixel of the result from the place in x that a matrix (B, 2, 3) maps it to, between pixels linearly.

    Places are (x, y) in pixels from the centre of the image. The result has `margin` pixels more on each side.
    """
    height, width = x.shape[-2:]
    across, down = (
        torch.arange(-margin, n + margin, device=x.device, dtype=x.dtype) - (n - 1) / 2 for n in (width, height)
    )
    places = torch.stack([*torch.meshgrid(across, down, indexing="xy"), torch.ones_like(across + down[:, None])])
    sources = torch.einsum("bij,jhw->ibhw", matrix, places)
    grid = torch.stack([2 * s / max(n - 1, 1) for s, n in zip(sources, (width, height), strict=True)], dim=-1)
    return grid_sample(x, grid, mode="bilinear", padding_mode=edge, align_corners=True)


def blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur each image by a Gaussian of its own deviation (B, 1), in pixels; the margin that this needs is cut off."""
    distance = torch.arange(TAPS, device=x.device, dtype=x.dtype) - TAPS // 2
    weights = torch.softmax(-0.5 * (distance / sigma) ** 2, dim=1).view(-1, TAPS, 1, 1, 1)
    height, width = (n - TAPS + 1 for n in x.shape[-2:])
    x = torch.stack([weights[:, i] * x[..., i : i + width] for i in range(TAPS)]).sum(dim=0)
    return torch.stack([weights[:, i] * x[..., i : i + height, :] for i in range(TAPS)]).sum(dim=0)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    return torch.stack([weight * x[:, i] for i, weight in enumerate(GREY)], dim=1).sum(dim=1, keepdim=True)


def _between(u: Tensor, *ranges: tuple[float, float]) -> Tensor:
    """Bring the columns of uniform numbers into their ranges."""
    return torch.stack([low + (high - low) * u[:, i] for i, (low, high) in enumerate(ranges)], dim=1)


def _affine(u: Tensor, shape: torch.Size) -> Tensor:
    """Turn by up to 15°, scale by up to a tenth, shift by up to an eighth of the side, in whole pixels: (B, 2, 3)."""
    angle, scale = _between(u, (-math.pi / 12, math.pi / 12), (0.9, 1.1)).unbind(dim=1)
    shift = _between(u[:, 2:], *((-n / 8, n / 8) for n in reversed(shape))).round()
    turn = _matrix(torch.zeros_like(angle), angle)[:, :, :2] / scale.view(-1, 1, 1)
    return torch.cat([turn, -turn @ shift[:, :, None]], dim=2)


def _matrix(
    right: Tensor,
    angle: Tensor | float = 0.0,
    shear_x: Tensor | float = 0.0,
    shear_y: Tensor | float = 0.0,
    down: Tensor | float = 0.0,
) -> Tensor:
    """Build the matrices (B, 2, 3) of `move` from a shift, an angle and shears."""
    angle, shear_x, shear_y, down = (right.new_zeros(len(right)) + each for each in (angle, shear_x, shear_y, down))
    rows = [angle.cos(), angle.sin() + shear_x, right, shear_y - angle.sin(), angle.cos(), down]
    return torch.stack(rows, dim=1).view(-1, 2, 3)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Repeat each image, the copies of one beside each other."""
    return x[:, None].expand(-1, times, *x.shape[1:]).flatten(0, 1)


def _range(x: Tensor) -> tuple[Tensor, Tensor]:
    """Give the lowest value of each image, 0 at most, and how far its highest, 1 at least, is above it."""
    low = x.flatten(1).amin(dim=1).clamp_max(0).view(-1, 1, 1, 1)
    return low, x.flatten(1).amax(dim=1).clamp_min(1).view(-1, 1, 1, 1) - low


def _resized(x: Tensor, sides: list[int]) -> Tensor:
    return x if list(x.shape[2:]) == sides else interpolate(x, sides, mode="bilinear", antialias=True)
