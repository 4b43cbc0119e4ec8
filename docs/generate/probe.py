"""What a method costs and needs, found by running it on a small model; the pages print it."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import steep
from steep.errors import SteepError, SteepWarning

BATCH = 64


class _Counted(nn.Module):
    """Two convolutions with a normalisation between, sharp enough for confidence filters; counts what passes."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
        )
        self.count = {"forward": 0, "backward": 0}

    def forward(self, x: Tensor) -> Tensor:
        self.count["forward"] += len(x)
        logits: Tensor = self.layers(x)
        if logits.requires_grad:
            logits.register_hook(lambda grad: self.count.update(backward=self.count["backward"] + len(grad)))
        return 40 * logits


def _net(norm: nn.Module) -> _Counted:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _Counted(norm).eval()


def _images(seed: int) -> Tensor:
    return torch.rand(BATCH, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


@cache
def passes(method: str) -> tuple[tuple[float, float], tuple[float, float], str | None]:
    """Count forward and backward passes per test image, published settings: in the first batch, and in the third.

    The third is what a stream costs, unless the method's filter let nothing through: then its reason is given too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SteepWarning)
        adapter: Any = steep.adapt(_net(nn.BatchNorm2d(8)), method, guard="off")
    counts = []
    for seed in range(3):
        net = adapter.model
        net.count = {"forward": 0, "backward": 0}
        adapter(_images(seed))
        if seed == 0:  # a new shape of images is shown to the model once, before anything adapts
            net.count["forward"] -= BATCH
        counts.append((net.count["forward"] / BATCH, net.count["backward"] / BATCH))
    return counts[0], counts[2], adapter.last.skipped


@cache
def needs(method: str) -> str:
    """Say what a method cannot do without: found by giving it a model without BatchNorm, and no source images."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", SteepWarning)
        try:
            steep.adapt(_net(nn.GroupNorm(2, 8)), method)
        except SteepError:
            return "BatchNorm"
    return "some source images" if any("source" in str(each.message) for each in said) else "–"
