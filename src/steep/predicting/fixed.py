"""The adapted model as an ordinary one, with statistics fixed on the pictures that it was adapted to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.data import to_device
from steep.predicting.pictures import Pictures
from steep.predicting.run import batches

ENOUGH = 10_000  # pictures: a variance over so many is right to about a hundredth, and no folder takes hours again


def fixed(
    adapter: Adapter,
    pictures: Pictures,
    *,
    size: int | None = None,
    channels: int = 3,
    batch_size: int = 200,
    enough: int = ENOUGH,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[nn.Module, int]:
    """Merge the adapter: (the module, how many pictures its BatchNorm statistics were measured on).

    None are read where the method answers by fixed statistics anyway. Of more than `enough` so many are drawn, in
    whole batches. `progress` is told (pictures done, pictures in all).
    """
    seen, most = 0, math.ceil(enough / batch_size)  # batches

    def some() -> Iterator[Tensor]:
        nonlocal seen
        every = mixed(pictures, adapter.device, size=size, channels=channels, batch_size=batch_size)
        for x in islice(every, most):
            seen += len(x)
            yield x
            if progress is not None:
                progress(seen, min(len(pictures), most * batch_size))

    return adapter.merged(some()), seen


def mixed(
    pictures: Pictures, device: torch.device, *, size: int | None, channels: int, batch_size: int
) -> Iterator[Tensor]:
    """Read batches in a random order: with a folder for each class in turn they would vary less than the pictures."""
    order = np.random.default_rng(0).permutation(len(pictures))
    for _, pixels in batches(pictures, order, batch_size, size, channels, {}):
        yield to_device(pixels, device)
