"""What an adapted model is good for afterwards: weights for an ordinary model, and detecting unknown pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.core.losses import energy
from steep.data import to_device
from steep.errors import DataError
from steep.methods import SOURCE, adapt
from steep.metrics import Detection, detection
from steep.predicting.pictures import Pictures
from steep.predicting.run import batches

MOST_PICTURES = 10_000  # a variance over so many is right to about a hundredth; reading more again would take hours


def merged_model(
    adapter: Adapter,
    pictures: Pictures,
    *,
    size: int | None = None,
    channels: int = 3,
    batch_size: int = 200,
    most: int = MOST_PICTURES,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[nn.Module, int]:
    """Merge the adapter into a plain module: (the module, how many pictures its statistics were measured on).

    No picture is read where the method answers by fixed statistics anyway. At most `most` are drawn, in whole batches.
    `progress` is called with (pictures done, pictures in all).
    """
    seen, most_batches = 0, math.ceil(most / batch_size)

    def some() -> Iterator[Tensor]:
        nonlocal seen
        images = _shuffled_images(pictures, adapter.device, size=size, channels=channels, batch_size=batch_size)
        for x in islice(images, most_batches):
            seen += len(x)
            yield x
            if progress is not None:
                progress(seen, min(len(pictures), most_batches * batch_size))

    return adapter.merged(some()), seen


def ood_detection(
    model: nn.Module,
    adapter: Adapter,
    known: Pictures,
    unknown: Pictures,
    *,
    size: int | None = None,
    channels: int = 3,
    batch_size: int = 200,
) -> tuple[Detection, Detection]:
    """Score known and unknown pictures by their energy: (with the model as it came, with the adapted one).

    The adapter has seen the known pictures and not the unknown ones. Both are scored by `adapter.merged`, with
    statistics fixed on the known pictures: statistics of a mixed batch would fit the unknown ones too (docs/ood.md).
    """
    images = partial(_shuffled_images, device=adapter.device, size=size, channels=channels, batch_size=batch_size)

    def energies(scored: nn.Module, pictures: Pictures) -> Tensor:
        answer = adapt(scored, SOURCE, device=adapter.device)
        scores = [energy(answer(x)).cpu() for x in images(pictures)]
        if not scores:
            raise DataError(f"none of the {len(pictures)} pictures of no class can be read")
        return torch.cat(scores)

    adapted = adapter.merged(images(known))
    before, after = (detection(energies(each, known), energies(each, unknown)) for each in (model, adapted))
    return before, after


def _shuffled_images(
    pictures: Pictures, device: torch.device, *, size: int | None, channels: int, batch_size: int
) -> Iterator[Tensor]:
    """Read batches in a random order: a batch of one class folder would vary less than the pictures do."""
    order = np.random.default_rng(0).permutation(len(pictures))
    for _, pixels in batches(pictures, order, batch_size, size, channels, {}):
        yield to_device(pixels, device)
