"""Predict a set of pictures with a model that adapts to them, and what that model is good for afterwards."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.core.losses import energy
from steep.core.method import Method
from steep.data import to_device
from steep.data.transform import Transform
from steep.errors import DataError, InputError
from steep.methods import SOURCE, adapt, make
from steep.metrics import Detection, detection
from steep.models import loading
from steep.models.loading import LoadedModel
from steep.predicting.batch_size import fitting_pictures
from steep.predicting.pictures import Pictures
from steep.predicting.table import Row
from steep.training.weights import weights_file

MOST_PICTURES = 10_000  # a variance over so many is right to about a hundredth; reading more again would take hours


def load_model(name: str, *, weights: str | os.PathLike[str] | None = None, **options: Any) -> LoadedModel:
    """Load a model as `steep.models.loading.load_model` does; `weights` may also be a name, as the bench finds them."""
    return loading.load_model(name, weights=None if weights is None else weights_file(weights), **options)


@dataclass(eq=False)
class Predictions:
    """Answers to pictures, collected batch by batch, and how right they are where that is known."""

    pictures: Pictures
    adapter: Adapter
    source: Adapter  # the model as it came
    classes: tuple[str, ...]  # empty: unknown
    batch_size: int
    remark: str | None = None  # about the labels
    batches: int = 0
    unadapted: list[str] = field(default_factory=list)  # why not, of each batch that was answered without adapting
    _labels: list[int | None] = field(default_factory=list)
    _answered: dict[int, Row] = field(default_factory=dict)
    _unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """A row for each picture so far, in the order of the files."""
        rows = dict(self._answered)
        for number, why in self._unreadable.items():
            rows[number] = Row(self.pictures.names[number], None, None, None, skipped=f"unreadable: {why}")
        return [rows[number] for number in sorted(rows)]

    @property
    def unreadable(self) -> dict[str, str]:
        """The pictures that could not be read: file → why."""
        return {self.pictures.names[number]: why for number, why in sorted(self._unreadable.items())}

    @property
    def labelled(self) -> int:
        """How many of the answered pictures have a class that is known."""
        return len(self._known())

    @property
    def accuracy(self) -> float | None:
        """Accuracy over the labelled pictures; None where there are none."""
        known = self._known()
        return sum(row.label == right for row, right in known) / len(known) if known else None

    @property
    def accuracy_before(self) -> float | None:
        """The same of the model as it came."""
        known = self._known()
        return sum(row.source == right for row, right in known) / len(known) if known else None

    @property
    def changed(self) -> int:
        """How many pictures have another answer than the source model's."""
        return sum(row.label != row.source for row in self._answered.values())

    @property
    def unused(self) -> bool:
        """Whether nothing learned is in an answer: there was one batch, and it was answered before the update."""
        once = self.batches == self.adapter.behaviour.steps == 1 and self.adapter.predict == "before"
        return once and self.adapter.last is not None and self.adapter.last.loss is not None

    def add(self, numbers: list[int], x: Tensor) -> None:
        """Adapt to a batch and keep its answers."""
        logits = self.adapter(x)
        if not self._labels:  # only now is it known how many classes the model has
            count = logits.shape[1]
            self._labels, self.classes, self.remark = self.pictures.labels(self.classes, count)
            if self.classes and len(self.classes) != count:
                raise InputError(f"classes: expected {count} names, one for each logit, got {len(self.classes)}")
        self.batches += 1
        skipped = self.adapter.last.skipped if self.adapter.last is not None else None
        if skipped:
            self.unadapted.append(skipped)
        note = f"not adapted: {skipped}" if skipped else ""
        probability, answer = logits.softmax(dim=1).max(dim=1)
        columns = answer, self.source(x).argmax(dim=1), probability, energy(logits)
        for number, best, first, p, e in zip(numbers, *(column.tolist() for column in columns), strict=True):
            name, source = (self.classes[k] if self.classes else str(k) for k in (best, first))
            self._answered[number] = Row(self.pictures.names[number], name, p, e, source, note)

    def _known(self) -> list[tuple[Row, str]]:
        """Pair the rows of labelled pictures with their class, by name: ImageNet has two kinds of crane."""
        labels = ((row, self._labels[number]) for number, row in self._answered.items())
        return [(row, self.classes[label]) for row, label in labels if label is not None]


class PredictionStopped(KeyboardInterrupt):
    """Ctrl-C while predicting; `predictions` holds what was answered before it."""

    def __init__(self, predictions: Predictions) -> None:
        self.predictions = predictions


def predict(
    model: nn.Module,
    pictures: Pictures,
    method: str | Method[Any] = "tea",
    *,
    classes: Sequence[str] = (),
    size: int | None = None,
    channels: int = 3,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    seed: int = 0,
    setting: str = "paper",
    device: torch.device | str = "cpu",
    hyper: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Predictions:
    """Adapt to the pictures batch by batch and answer each; a picture that cannot be read gets a row that says why.

    Ctrl-C raises `PredictionStopped`, which carries the answers so far.

    Args:
        model: maps images in [0, 1] to logits.
        pictures: from `open_pictures`.
        method: how to adapt.
        classes: names of the classes in order, where known.
        size: resize to size × size.
        channels: of the images the model takes, 1 or 3.
        batch_size: pictures adapted on at a time; None: 200, or fewer where memory asks for it.
        shuffle: answer in a random order; None: only where there is a folder for each class, since a batch of one class
            misleads every method. The rows come in the order of the files either way.
        seed: of that order and of the method's own random stream.
        setting: "paper" or "tuned", as in `steep.adapt`.
        device: where to work.
        hyper: hyper-parameters of the method.
        progress: called with (pictures done, pictures in all).
        **options: all other arguments of `steep.adapt`: steps, episodic, views, guard, …

    >>> import numpy as np, steep
    >>> grey = lambda index, size, channels: np.full((8, 8, 3), 9 * index, np.uint8)
    >>> some = Pictures(("a.png", "b.png"), ((), ()), grey)
    >>> predictions = predict(steep.models.build("wrn-10-1", 10), some, "tent", classes="abcdefghij")
    >>> [row.file for row in predictions.rows], predictions.accuracy
    (['a.png', 'b.png'], None)
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size: expected 1 or more, got {batch_size}")
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}")
    Transform(size=size)  # refused before the memory for it is asked for
    adapter = adapt(model, make(method, setting, **(hyper or {})), seed=seed, device=device, **options)
    source = adapt(model, SOURCE, device=device)
    order = pictures.order(shuffle, seed)
    if batch_size is None:
        batch_size = fitting_pictures(source, pictures, size, channels)
    answers = Predictions(pictures, adapter, source, tuple(classes), batch_size)
    try:
        for numbers, pixels in pictures.batches(order, size, channels, batch_size, answers._unreadable):
            answers.add(numbers, to_device(pixels, adapter.device))
            if progress is not None:
                progress(len(answers._answered) + len(answers._unreadable), len(pictures))
    except KeyboardInterrupt:
        raise PredictionStopped(answers) from None
    if not answers.batches:
        why = next(iter(answers.unreadable.values()))
        raise DataError(f"none of the {len(pictures)} pictures can be read; the first: {why}")
    return answers


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
    for _, pixels in pictures.batches(pictures.order(True, 0), size, channels, batch_size, {}):
        yield to_device(pixels, device)
