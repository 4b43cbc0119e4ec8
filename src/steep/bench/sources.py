"""Where a cell gets its model and its images: from disk, the last few kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import nn

from steep.bench.spec import CLEAN, Cell
from steep.data import ImageSet, load
from steep.data.known import data_set
from steep.errors import CheckpointError, DataError, InputError
from steep.files import known_sha256
from steep.models import build, checkpoints
from steep.models.loading import PRETRAINED, LoadedModel, count_classes, is_outside, keep_outputs, load_model
from steep.training.weights import UNTRAINED

IMAGE_BYTES = 3 << 30  # of test images that stay in memory: all of CIFAR-10-C, which a gradual stream needs at once

T = TypeVar("T")


class Recent(Generic[T]):
    """The last few things made, by key, as many as fit a budget (and always the very last)."""

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


@dataclass
class Sources:
    """Models and images from files."""

    root: Path | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)  # name → file
    code: Mapping[str, str] = field(default_factory=dict)  # file.py:factory → with its folder, which no row has

    def __post_init__(self) -> None:
        self._models = Recent[nn.Module](2)
        self._images = Recent[ImageSet](IMAGE_BYTES, weigh=lambda data: data.images.nbytes)
        self._train = Recent[ImageSet | None](1)

    def model(self, cell: Cell, images: ImageSet) -> nn.Module:
        """Give the source model, in eval mode on the CPU, for images like these."""
        return self._models.get(model_key(cell, images), lambda: self._load_model(cell, images))

    def images(self, cell: Cell, shift: str, severity: int) -> ImageSet:
        """Give the test images of one shift."""
        key = (cell.data, shift, severity, cell.limit, *_pixels(cell).values())
        return self._images.get(key, lambda: self._load_shift(cell, shift, severity))

    def train(self, cell: Cell) -> ImageSet | None:
        """Give images the source model was trained on, never a test image; None where there are none."""
        key = (cell.data, cell.source, *_pixels(cell).values())
        return self._train.get(key, lambda: self._load_train(cell))

    def load_model(self, model: str, weights: str, num_classes: int | None = None, channels: int = 3) -> LoadedModel:
        """Load a model with weights by name, as `steep predict` does."""
        if weights != PRETRAINED and weights not in self.weights:
            raise CheckpointError(f"weights {weights}: no file is known for them. Give one: --weights FILE")
        return load_model(
            self.code.get(model, model),
            weights=self.weights.get(weights),
            pretrained=weights == PRETRAINED,
            num_classes=num_classes,
            channels=channels,
        )

    def _load_model(self, cell: Cell, images: ImageSet) -> nn.Module:
        """Load a model and keep those of its classes that the images have."""
        if images.subset is None:
            return self._load_whole(cell, len(images.classes), images.images.shape[3])
        return keep_outputs(self._load_whole(cell, images.subset.of, images.images.shape[3]), *images.subset)

    def _load_whole(self, cell: Cell, classes: int, channels: int) -> nn.Module:
        if cell.weights == UNTRAINED and not is_outside(cell.model):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return build(cell.model, classes, in_channels=channels).eval()
        if not is_outside(cell.model):
            return self.load_model(cell.model, cell.weights, classes, channels).model
        model = self.load_model(cell.model, cell.weights, None, channels).model
        if cell.weights == PRETRAINED and cell.weights_sha256 not in ("", digest := checkpoints.digest(model)):
            raise CheckpointError(f"weights of {cell.model}: expected sha256 {cell.weights_sha256}, got {digest}")
        if (answers := count_classes(model)) not in (None, classes):
            raise InputError(
                f"model {cell.model}: expected {classes} answers, the classes of {cell.data}, got {answers}. "
                f"Fine-tune it: steep train RECIPE --model {cell.model} --init pretrained"
            )
        return model

    def _load_shift(self, cell: Cell, shift: str, severity: int) -> ImageSet:
        name = cell.data.removesuffix("-c") if shift == CLEAN else cell.data
        which: dict[str, str | int] = {}
        if not cell.data.endswith("-c") and data_set(cell.data).domains:
            which = {"domain": shift}
        elif shift != CLEAN:
            which = {"corruption": shift, "severity": severity}
        # mixed: a batch of one class misleads every method; label-shift is a protocol of its own
        pixels = {"limit": cell.limit, **_pixels(cell)}
        return load(name, "test", self.root, mix=True, **pixels, **which)  # type: ignore[arg-type]

    def _load_train(self, cell: Cell) -> ImageSet | None:
        which = {**_pixels(cell), "domain": cell.source or None}
        try:
            return load(cell.data.removesuffix("-c"), "train", self.root, **which)  # type: ignore[arg-type]
        except DataError:
            return None


def _pixels(cell: Cell) -> dict[str, int | float | str | None]:
    return {name: getattr(cell, name) for name in ("size", "crop", "interpolation", "channels")}


def model_key(cell: Cell, images: ImageSet) -> tuple[Hashable, ...]:
    """Name what a source model depends on: cells of the same key share one."""
    classes = images.subset or len(images.classes)
    return (cell.model, cell.weights, cell.weights_sha256, classes, images.images.shape[3])


def weights_sha256(path: Path) -> str:
    """Give the checksum of a file, which goes into the key of every cell; read once per process and state."""
    try:
        return known_sha256(path)
    except OSError as error:
        raise CheckpointError(f"{path}: expected a file of weights, got {error.strerror or error}") from error
