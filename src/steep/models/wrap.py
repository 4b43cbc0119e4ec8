"""A model that carries its own input normalisation, so that callers always hand over images in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from steep.errors import InputError


class Normalized(nn.Module):
    """Subtract `mean` and divide by `std`, channel by channel, before the model.

    What the model answers (a tensor, a tuple, an object with `.logits`, ...) comes back as it is. `mean` and
    `std` are buffers: they move with the module and are saved with it, and no optimiser sees them. They are
    saved on purpose: a checkpoint that forgets its normalisation fails silently. Weights without them load
    into `.model`.

    Args:
        model: maps normalised images (B, C, H, W) to logits.
        mean: one number per channel, in units of images in [0, 1].
        std: one positive number per channel.

    >>> net = Normalized(nn.Flatten(), mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.5])
    >>> net(torch.ones(1, 3, 1, 1))
    tensor([[2., 2., 1.]])
    >>> net(torch.ones(1, 1, 28, 28))
    Traceback (most recent call last):
    steep.errors.InputError: images: expected (B, 3, H, W), one channel per mean, got (1, 1, 28, 28)
    """

    mean: Tensor
    std: Tensor
    image_range: ClassVar = (0.0, 1.0)  # what it takes; images beyond were normalised before, and are warned about

    def __init__(self, model: nn.Module, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", _per_channel("mean", mean))  # (C, 1, 1)
        self.register_buffer("std", _per_channel("std", std))  # (C, 1, 1)
        if self.mean.shape != self.std.shape:
            raise InputError(f"std: expected as many numbers as mean has, {len(self.mean)}, got {len(self.std)}")
        if not bool((self.std > 0).all()):
            raise InputError(f"std: expected positive numbers, got {self.std.flatten().tolist()}")

    def forward(self, x: Tensor) -> Any:
        """Answer what the model answers for the normalised images (B, C, H, W)."""
        channels = len(self.mean)
        if x.ndim != 4 or x.shape[1] != channels:
            raise InputError(f"images: expected (B, {channels}, H, W), one channel per mean, got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise InputError(f"images: expected floating point in [0, 1], got {x.dtype}; divide by 255")
        # In the images' own precision, so that a bfloat16 model is not handed float32.
        return self.model((x - self.mean.to(x.dtype)) / self.std.to(x.dtype))

    def extra_repr(self) -> str:
        """Show the numbers in `repr`."""
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


def _per_channel(name: str, values: Sequence[float] | Tensor) -> Tensor:
    # A copy: a buffer that aliased the caller's tensor would change with it.
    flat = torch.as_tensor(values, dtype=torch.float32).detach().clone().flatten()
    if flat.numel() == 0 or not bool(flat.isfinite().all()):
        raise InputError(f"{name}: expected one finite number per channel, got {flat.tolist()}")
    return flat[:, None, None]
