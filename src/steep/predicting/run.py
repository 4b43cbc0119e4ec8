"""Predict a set of pictures with a model that adapts to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.core.losses import energy
from steep.core.method import Method
from steep.data import to_device
from steep.errors import DataError, InputError
from steep.methods import SOURCE, adapt, make
from steep.predicting.pictures import Pictures
from steep.predicting.table import Row

_THREADS = 4  # Pillow decodes outside the interpreter lock


@dataclass(eq=False)
class Predictions:
    """Answers to pictures, collected batch by batch, and how right they are where that is known."""

    pictures: Pictures
    adapter: Adapter
    source: Adapter  # the model as it came
    classes: tuple[str, ...]  # empty: unknown
    remark: str | None = None  # about the labels
    batches: int = 0
    unadapted: list[str] = field(default_factory=list)  # why not, of each batch that was answered without adapting
    labelled: int = 0  # pictures whose class is known
    _right: int = 0
    _right_before: int = 0
    _labels: list[int | None] = field(default_factory=list)
    _answered: dict[int, Row] = field(default_factory=dict)
    _unreadable: dict[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """A row for each picture so far, in the order of the files."""
        rows = dict(self._answered)
        for number, why in self._unreadable.items():
            rows[number] = Row(self.pictures.names[number], None, None, None, f"unreadable: {why}")
        return [rows[number] for number in sorted(rows)]

    @property
    def unreadable(self) -> dict[str, str]:
        """The pictures that could not be read: file → why."""
        return {self.pictures.names[number]: why for number, why in sorted(self._unreadable.items())}

    @property
    def accuracy(self) -> float | None:
        """Accuracy over the labelled pictures; None where there are none."""
        return self._right / self.labelled if self.labelled else None

    @property
    def accuracy_before(self) -> float | None:
        """The same of the model as it came."""
        return self._right_before / self.labelled if self.labelled else None

    def add(self, numbers: list[int], x: Tensor) -> None:
        """Adapt to a batch and keep its answers."""
        logits = self.adapter(x)
        if not self._labels:  # only now is it known how many classes the model has
            count = logits.shape[1]
            self._labels, self.classes, self.remark = self.pictures.labels(self.classes, count)
            if self.classes and len(self.classes) != count:
                raise InputError(f"classes: expected {count} names, one for each logit, got {len(self.classes)}")
        self._score(numbers, x, logits)
        self.batches += 1
        skipped = self.adapter.last.skipped if self.adapter.last is not None else None
        if skipped:
            self.unadapted.append(skipped)
        note = f"not adapted: {skipped}" if skipped else ""
        probability, answer = logits.softmax(dim=1).max(dim=1)
        columns = (answer.tolist(), probability.tolist(), energy(logits).tolist())
        for number, best, p, e in zip(numbers, *columns, strict=True):
            label = self.classes[best] if self.classes else str(best)
            self._answered[number] = Row(self.pictures.names[number], label, p, e, note)

    def _score(self, numbers: list[int], x: Tensor, logits: Tensor) -> None:
        labels = [self._labels[number] for number in numbers]
        at = [place for place, label in enumerate(labels) if label is not None]
        if at:
            wanted = torch.tensor([labels[place] for place in at], device=logits.device)
            right, before = (int((answers[at].argmax(dim=1) == wanted).sum()) for answers in (logits, self.source(x)))
            self.labelled += len(at)
            self._right += right
            self._right_before += before


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
    batch_size: int = 200,
    shuffle: bool | None = None,
    seed: int = 0,
    setting: str = "paper",
    steps: int = 1,
    episodic: bool = False,
    views: str | None = None,
    device: torch.device | str = "cpu",
    hyper: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
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
        batch_size: pictures adapted on at a time.
        shuffle: answer in a random order; None: only where there is a folder for each class, since a batch of one class
            misleads every method. The rows come in the order of the files either way.
        seed: of that order and of the method's own random stream.
        setting: "paper" or "tuned", as in `steep.adapt`.
        steps: updates on each batch.
        episodic: forget everything before each batch.
        views: average the answers over views of a picture, "mirror" or "shifts", as in `steep.adapt`.
        device: where to work.
        hyper: hyper-parameters of the method.
        progress: called with (pictures done, pictures in all).

    >>> import steep
    >>> grey = lambda index, size, channels: np.full((8, 8, 3), 9 * index, np.uint8)
    >>> some = Pictures(("a.png", "b.png"), ((), ()), grey)
    >>> predictions = predict(steep.models.build("wrn-10-1", 10), some, "tent", classes="abcdefghij")
    >>> [row.file for row in predictions.rows], predictions.accuracy
    (['a.png', 'b.png'], None)
    """
    if batch_size < 1:
        raise InputError(f"batch_size: expected 1 or more, got {batch_size}")
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}")
    if isinstance(method, str):
        method = make(method, setting, **(hyper or {}))
    adapter = adapt(model, method, steps=steps, episodic=episodic, views=views, seed=seed, device=device)
    answers = Predictions(pictures, adapter, adapt(model, SOURCE, device=device), tuple(classes))
    # a batch of one class misleads every method; one picture beside the class folders must not bring that back
    in_folders = 2 * sum(map(bool, pictures.folders)) > len(pictures)
    order = np.arange(len(pictures))
    if in_folders if shuffle is None else shuffle:
        order = np.random.default_rng(seed).permutation(order)
    try:
        for numbers, pixels in batches(pictures, order, batch_size, size, channels, answers._unreadable):
            answers.add(numbers, to_device(pixels, adapter.device))
            if progress is not None:
                progress(len(answers._answered) + len(answers._unreadable), len(pictures))
    except KeyboardInterrupt:
        raise PredictionStopped(answers) from None
    if not answers.batches:
        first = next(iter(answers.unreadable.values()))
        raise DataError(f"none of the {len(pictures)} pictures can be read; the first: {first}")
    return answers


def batches(
    pictures: Pictures,
    order: NDArray[np.int64],
    batch_size: int,
    size: int | None,
    channels: int,
    unreadable: dict[int, str],
) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
    """Decode in order and yield full batches: (numbers, uint8 (B, H, W, C)); why others failed goes to `unreadable`."""
    pending: list[tuple[int, NDArray[np.uint8]]] = []

    def read(number: int) -> NDArray[np.uint8] | str:
        try:
            return pictures.read(number, size, channels)
        except DataError as error:
            return " ".join(str(error).split())

    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(order), batch_size):
            chunk = [int(number) for number in order[start : start + batch_size]]
            for number, pixels in zip(chunk, pool.map(read, chunk), strict=True):
                if isinstance(pixels, str):
                    unreadable[number] = pixels
                else:
                    pending.append((number, pixels))
            while len(pending) >= batch_size or (pending and start + batch_size >= len(order)):
                batch, pending = pending[:batch_size], pending[batch_size:]
                yield [number for number, _ in batch], _stacked(batch, pictures)


def _stacked(batch: list[tuple[int, NDArray[np.uint8]]], pictures: Pictures) -> NDArray[np.uint8]:
    first, shape = batch[0][0], batch[0][1].shape
    for number, pixels in batch:
        if pixels.shape != shape:
            raise InputError(
                f"{pictures.names[number]}: {pixels.shape[1]} × {pixels.shape[0]} pixels, but {pictures.names[first]} "
                f"has {shape[1]} × {shape[0]}. Give --size to bring all to one size"
            )
    return np.stack([pixels for _, pixels in batch])
