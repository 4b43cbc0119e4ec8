"""Where a cell gets its model and its images: from disk here, from the cluster's memory in `ray`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn

from steep.bench.spec import CLEAN, Cell
from steep.data import ImageSet, load
from steep.data.known import data_set
from steep.errors import CheckpointError, DataError
from steep.models import Normalized, build, checkpoints

UNTRAINED = "untrained"
"""Weights of a model as initialised with seed 0: for trying a grid out."""

IMAGE_BYTES = 3 << 30
"""How much of the test images stays in memory: all 75 sets of CIFAR-10-C, which a gradual stream needs at once."""

T = TypeVar("T")


class Sources(Protocol):
    """What a cell asks for."""

    def model(self, cell: Cell, images: ImageSet) -> nn.Module:
        """Give the source model, in eval mode on the CPU, for images like these."""

    def images(self, cell: Cell, shift: str, severity: int) -> ImageSet:
        """Give the test images of one shift."""

    def train(self, cell: Cell) -> ImageSet | None:
        """Give images the source model was trained on, or None where there are none."""


class Recent(Generic[T]):
    """The last few things made, by key, as many as fit a budget (and always the very last).

    >>> sets = Recent[str](5, weigh=len)
    >>> sets.get("a", lambda: "four"), sets.get("a", lambda: "other"), sets.get("b", lambda: "two")
    ('four', 'four', 'two')
    >>> sets.get("a", lambda: "made again")
    'made again'
    """

    def __init__(self, budget: int, weigh: Callable[[T], int] = lambda thing: 1) -> None:
        self.budget, self.weigh = budget, weigh
        self._things: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under a key, making it first where it is not."""
        if key not in self._things:
            self._things[key] = make()
            while len(self._things) > 1 and sum(map(self.weigh, self._things.values())) > self.budget:
                self._things.popitem(last=False)
        self._things.move_to_end(key)
        return self._things[key]


class Disk:
    """Models and images from files, the last few kept in memory."""

    def __init__(self, root: Path | None = None, weights: Mapping[str, Path] | None = None) -> None:
        self.root = root
        self.weights = dict(weights or {})  # name → file
        self._models = Recent[nn.Module](2)
        self._images = Recent[ImageSet](IMAGE_BYTES, weigh=lambda data: data.images.nbytes)
        self._train = Recent[ImageSet | None](1)

    def model(self, cell: Cell, images: ImageSet) -> nn.Module:
        """Build the model and load its weights."""
        key = (cell.model, cell.weights, cell.weights_sha256, len(images.classes), images.images.shape[3])
        return self._models.get(key, lambda: assemble(cell, images, self.weights.get(cell.weights)))

    def images(self, cell: Cell, shift: str, severity: int) -> ImageSet:
        """Load the images of one shift."""
        key = (cell.data, shift, severity, cell.size, cell.channels, cell.limit)
        return self._images.get(key, lambda: load_shift(cell, shift, severity, self.root))

    def train(self, cell: Cell) -> ImageSet | None:
        """Load the training split, or None where it is not here."""
        key = (cell.data, cell.source, cell.size, cell.channels)
        return self._train.get(key, lambda: load_train(cell, self.root))


def load_shift(cell: Cell, shift: str, severity: int, root: Path | None) -> ImageSet:
    """Load the images of one shift, as the cell wants them."""
    clean = shift == CLEAN
    domains = () if cell.data.endswith("-c") else data_set(cell.data).domains
    return load(
        cell.data.removesuffix("-c") if clean else cell.data,
        "test",
        root,
        limit=cell.limit,
        mix=True,  # a batch of one class misleads every method; label-shift is a protocol of its own
        size=cell.size,
        channels=cell.channels,
        domain=shift if domains else None,
        corruption=None if domains or clean else shift,
        severity=None if domains or clean else severity,
    )


def load_train(cell: Cell, root: Path | None) -> ImageSet | None:
    """Load what the source model was trained on: the train split, never a test image."""
    try:
        return load(
            cell.data.removesuffix("-c"),
            "train",
            root,
            size=cell.size,
            channels=cell.channels,
            domain=cell.source or None,
        )
    except DataError:
        return None


def assemble(cell: Cell, images: ImageSet, file: Path | None) -> nn.Module:
    """Build the model of a cell for images like these, with its weights in it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(cell.model, len(images.classes), in_channels=images.images.shape[3])
    if cell.weights == UNTRAINED:
        return model.eval()
    if file is None:
        raise CheckpointError(f"weights {cell.weights}: no file is known for them. Give one: --weights FILE")
    checkpoint = checkpoints.read(file)
    if {"mean", "std"} <= checkpoint.tensors.keys():  # saved together with its input normalisation
        model = Normalized(model, checkpoint.tensors["mean"], checkpoint.tensors["std"])
    checkpoints.copy_weights(checkpoint, model)
    return model.eval()
