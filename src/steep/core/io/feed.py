"""Images as loaders, arrays and cameras give them, made into what a model takes; what has two readings is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from steep.errors import InputError

CHANNELS = (1, 3)  # of grey and of colour images
PERMUTE = "x.permute(0, 3, 1, 2)"


def as_images(batch: Any, net: nn.Module, device: torch.device) -> Any:
    """Take the images out of a loader's batch, scale bytes to [0, 1] and put the channels second.

    A tensor of floats is taken as it is, and what is nothing of all this comes back for others to refuse.
    """
    x = _only_images(batch)
    if stored := isinstance(x, np.ndarray):
        try:
            x = torch.from_numpy(np.array(x, order="C"))  # a copy: some are read-only, or run backwards
        except (TypeError, ValueError) as error:
            raise InputError(f"images: expected numbers, got an array of {x.dtype} ({error})") from None
    if not isinstance(x, Tensor) or x.is_meta or x.is_nested or x.layout != torch.strided:
        return x
    if x.ndim in (4, 5) and x.numel() and (stored or x.dtype == torch.uint8):
        x = _channels_second(x, net)
    return scaled(x.to(device)) if x.dtype == torch.uint8 else x


def scaled(pixels: Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    """Make bytes float32 in [0, 1], where they are: the same bytes give the same bits on every path and device."""
    most = torch.full((), 255.0, device=pixels.device)  # divided by a number, a GPU multiplies by its rounded inverse
    return pixels.to(torch.float32, memory_format=memory_format).div_(most)


def channels_last(shape: torch.Size) -> bool:
    """Whether only the last length can be a number of channels."""
    return len(shape) == 4 and shape[-1] in CHANNELS and shape[1] not in CHANNELS


def _only_images(batch: Any) -> Any:
    """Take the one batch of images out of a tuple, list or mapping; labels and the like have fewer dimensions."""
    if not isinstance(batch, (tuple, list, Mapping)):
        return batch
    parts = dict(batch) if isinstance(batch, Mapping) else dict(enumerate(batch))
    stacks, singles = (
        [name for name, part in parts.items() if getattr(part, "ndim", 0) in of] for of in ((4, 5), (3,))
    )
    if len(stacks) == 1:
        return parts[stacks[0]]
    if stacks:
        fix = f"Choose one: adapter(batch[{stacks[0]!r}])"
    elif 0 < len(singles) < len(parts):
        fix = f"One image? Give it a batch of its own: adapter(batch[{singles[0]!r}][None])"
    else:
        tensors = all(isinstance(part, Tensor) for part in parts.values())
        stack = "torch.stack(batch)" if tensors else "numpy.stack([numpy.asarray(image) for image in batch])"
        fix = f"Put them together: adapter({stack})"
    raise InputError(
        f"images: expected a batch (B, C, H, W), alone or with its labels, got a {type(batch).__name__} with "
        f"{len(stacks)} batches in it. {fix}"
    )


def _channels_second(x: Tensor, net: nn.Module) -> Tensor:
    """Move the channels from the last place to the second where the first layer of the model takes that many."""
    first = next((m for m in net.modules() if isinstance(m, (_ConvNd, nn.Linear))), None)
    if isinstance(first, _ConvNd):
        return x.movedim(-1, 1).contiguous() if x.shape[-1] == first.in_channels != x.shape[1] else x
    if channels_last(x.shape):
        raise InputError(
            f"images: expected (B, C, H, W), got {tuple(x.shape)}, and the first layer of this model does not tell "
            f"where its channels are. If they are last: {PERMUTE}"
        )
    return x


def blank(x: Tensor) -> Tensor:
    """Mask the images (B,) whose every channel has one value alone: frames of a dark or a dead camera.

    >>> blank(torch.stack([torch.zeros(3, 2, 2), torch.eye(2).expand(3, 2, 2)])).tolist()
    [True, False]
    """
    low, high = x.flatten(2).aminmax(dim=2)
    return (low == high).all(dim=1) & (x[0, 0].numel() > 1)
