"""Images cut into patches that change places: what they show is destroyed, their texture stays."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from steep.core.batch import part, size
from steep.errors import InputError


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


def _resized(x: Tensor, sides: list[int]) -> Tensor:
    return x if list(x.shape[2:]) == sides else interpolate(x, sides, mode="bilinear", antialias=True)
