"""Pictures of no class: how well the energy tells them from yours, by the model as it came and as it is adapted."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.core.losses import energy
from steep.errors import DataError
from steep.methods import adapt
from steep.metrics import Detection, detection
from steep.predicting.fixed import mixed
from steep.predicting.pictures import Pictures


def told_apart(
    model: nn.Module,
    adapter: Adapter,
    known: Pictures,
    unknown: Pictures,
    *,
    size: int | None = None,
    channels: int = 3,
    batch_size: int = 200,
) -> tuple[Detection, Detection]:
    """Score known and unknown pictures by their energy: (the model as it came, the adapter's as it is now).

    The adapter has seen the known pictures and not the unknown ones. Both are scored by `adapter.merged`, with
    statistics fixed on the known: in one batch with strangers, batch statistics would serve these too (docs/ood.md).
    """
    images = partial(mixed, device=adapter.device, size=size, channels=channels, batch_size=batch_size)

    def scores(scored: nn.Module, pictures: Pictures) -> Tensor:
        answer = adapt(scored, "source", device=adapter.device)
        found = [energy(answer(x)).cpu() for x in images(pictures)]
        if not found:
            raise DataError(f"none of the {len(pictures)} pictures of no class can be read")
        return torch.cat(found)

    adapted = adapter.merged(images(known))
    before, after = (detection(scores(each, known), scores(each, unknown)) for each in (model, adapted))
    return before, after
