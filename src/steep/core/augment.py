"""Views of images: changes that leave the class as it is, for methods that want an answer to survive them.

Each image has its own draw, from the method's own generator, and all of them are changed together on the device. Where
ranks share a batch, the numbers are drawn for the whole of it, so that an image's view is the same on any rank.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from steep.core.batch import part, size
from steep.errors import InputError

GREY = (0.2989, 0.587, 0.114)  # how much red, green and blue weigh in brightness
TAPS = 5  # of the blur


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
    low = x.flatten(1).amin(dim=1).clamp_max(0).view(-1, 1, 1, 1)
    span = x.flatten(1).amax(dim=1).clamp_min(1).view(-1, 1, 1, 1) - low
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
    turn = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], dim=1).view(-1, 2, 2)
    matrix = turn / scale.view(-1, 1, 1)
    return torch.cat([matrix, -matrix @ shift[:, :, None]], dim=2)
