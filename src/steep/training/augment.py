"""Random crops and mirror images of a whole batch at once, on uint8 pictures that stay on the device.

An epoch's random numbers are drawn before it starts, from a generator of its own that (seed, epoch) decides.
A run that stopped inside an epoch finds the same order and the same crops again without having stored them, and
draws the same on every device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from steep.corruptions import filters
from steep.errors import InputError
from steep.training.spec import Border


class Draws(NamedTuple):
    """The random choices of one epoch, one entry per picture in the order they are shown."""

    order: Tensor  # (N,) which picture
    top: Tensor  # (N,) rows of the padded picture above the crop, 0 … 2·pad
    left: Tensor  # (N,) columns left of it
    flip: Tensor  # (N,) whether the crop is mirrored

    def batch(self, start: int, stop: int) -> Draws:
        """Return the choices of some consecutive pictures."""
        return Draws(*(part[start:stop] for part in self))


def draw(count: int, *, seed: int, epoch: int, pad: int, flip: bool, device: torch.device) -> Draws:
    """Draw the choices of one epoch.

    >>> first = draw(4, seed=0, epoch=0, pad=1, flip=True, device=torch.device("cpu"))
    >>> sorted(first.order.tolist()), bool(((first.top >= 0) & (first.top <= 2)).all())
    ([0, 1, 2, 3], True)
    """
    mixed = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> np.uint64(1))
    generator = torch.Generator().manual_seed(mixed)
    drawn = Draws(
        torch.randperm(count, generator=generator),
        torch.randint(0, 2 * pad + 1, (count,), generator=generator),
        torch.randint(0, 2 * pad + 1, (count,), generator=generator),
        torch.rand(count, generator=generator) < (0.5 if flip else 0.0),
    )
    return Draws(*(part.to(device) for part in drawn))


def padded(images: Tensor, pad: int, border: Border) -> Tensor:
    """Put `pad` rows and columns around each picture of (N, H, W, C): zeros, or the picture mirrored at its edge."""
    if pad == 0:
        return images
    if border == "reflect":
        if pad >= (side := min(images.shape[1:3])):
            raise InputError(
                f"pad: expected less than {side}, the pictures' shorter side, got {pad}: "
                'border = "reflect" has no more rows to mirror. Make pad smaller or border "zeros"'
            )
        return filters.pad(images, pad, (1, 2), "reflect")
    return F.pad(images, (0, 0, pad, pad, pad, pad))


def crops(images: Tensor, draws: Draws, pad: int) -> Tensor:
    """Cut one crop out of each drawn picture of the padded (N, H + 2·pad, W + 2·pad, C), mirrored where drawn.

    >>> images = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 4, 1)
    >>> whole = Draws(torch.tensor([0]), torch.tensor([0]), torch.tensor([0]), torch.tensor([True]))
    >>> crops(images, whole, pad=0).flatten().tolist()
    [3, 2, 1, 0]
    """
    height, width = images.shape[1] - 2 * pad, images.shape[2] - 2 * pad
    across = torch.arange(width, device=images.device)
    rows = draws.top[:, None] + torch.arange(height, device=images.device)  # (B, H)
    columns = draws.left[:, None] + torch.where(draws.flip[:, None], across.flip(0), across)  # (B, W)
    return images[draws.order[:, None, None], rows[:, :, None], columns[:, None, :]]  # (B, H, W, C)
