"""Predict a set of pictures with a model that adapts to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steep import metrics
from steep.core.adapter import Adapter
from steep.core.losses import energy
from steep.core.method import Method
from steep.data import to_device
from steep.errors import DataError, InputError
from steep.methods import adapt, make
from steep.predicting.pictures import Pictures
from steep.predicting.table import Row

_THREADS = 4  # Pillow decodes outside the interpreter lock


@dataclass(frozen=True, eq=False)
class Predictions:
    """What came out: a row for each picture in the order of the files, and how right they are where that is known."""

    rows: list[Row]
    adapter: Adapter
    batches: int
    unadapted: list[str]  # why not, of each batch that was answered without adapting
    unreadable: dict[str, str]  # file → why
    labelled: int  # pictures whose class is known
    accuracy: float | None  # over those; None where there are none
    accuracy_before: float | None  # of the model as it came
    remark: str | None


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
    device: torch.device | str = "cpu",
    hyper: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Adapt to the pictures batch by batch and answer each; what cannot be read is skipped and said.

    Args:
        model: maps images in [0, 1] to logits.
        pictures: from `open_pictures`.
        method: how to adapt.
        classes: names of the classes in order, where known.
        size: resize to size × size.
        channels: planes the model takes, 1 or 3.
        batch_size: pictures adapted on at a time.
        shuffle: answer in a random order; None: only where there is a folder for each class, since a batch of one class
            misleads every method. The rows come in the order of the files either way.
        seed: of that order and of the method's own random stream.
        setting: "paper" or "tuned", as in `steep.adapt`.
        steps: updates on each batch.
        episodic: forget everything before each batch.
        device: where to work.
        hyper: hyper-parameters of the method.
        progress: told (pictures done, pictures in all).

    >>> import steep
    >>> grey = lambda index, size, channels: np.full((8, 8, 3), 9 * index, np.uint8)
    >>> some = Pictures(("a.png", "b.png"), ((), ()), grey)
    >>> found = predict(steep.models.build("wrn-10-1", 10), some, "tent", classes="abcdefghij")
    >>> [row.file for row in found.rows], found.accuracy
    (['a.png', 'b.png'], None)
    """
    if batch_size < 1:
        raise InputError(f"batch_size: expected 1 or more, got {batch_size}")
    if seed < 0:
        raise InputError(f"seed: expected 0 or more, got {seed}")
    if isinstance(method, str):
        method = make(method, setting, **(hyper or {}))
    adapter = adapt(model, method, steps=steps, episodic=episodic, seed=seed, device=device)
    source = adapt(model, "source", device=device)
    # one picture beside the folders of classes must not bring those back into order
    labelled_folders = 2 * sum(map(bool, pictures.folders)) > len(pictures)
    order = np.arange(len(pictures))
    if labelled_folders if shuffle is None else shuffle:
        order = np.random.default_rng(seed).permutation(order)
    rows: dict[int, Row] = {}
    unreadable: dict[int, str] = {}
    labels: list[int | None] = []
    names: tuple[str, ...] = tuple(classes)
    remark: str | None = None
    count, unadapted = 0, []
    scores: list[tuple[Tensor, Tensor, Tensor]] = []  # (logits, logits without adaptation, labels) of labelled pictures
    for numbers, pixels in batches(pictures, order, batch_size, size, channels, unreadable):
        x = to_device(pixels, adapter.device)
        logits = adapter(x)
        if not labels:  # only now is it known how many classes the model has
            labels, names, remark = pictures.labels(classes, logits.shape[1])
            if names and len(names) != logits.shape[1]:
                raise InputError(f"classes: expected {logits.shape[1]} names, one for each logit, got {len(names)}")
        at = [place for place, number in enumerate(numbers) if labels[number] is not None]
        if at:
            known = torch.tensor([labels[numbers[place]] for place in at])
            scores.append((logits[at].cpu(), source(x)[at].cpu(), known))
        count += 1
        report = adapter.last
        skipped = report.skipped if report is not None else None
        if skipped:
            unadapted.append(skipped)
        _record(rows, numbers, logits, names, pictures, skipped)
        if progress is not None:
            progress(len(rows) + len(unreadable), len(pictures))
    if not rows:
        why = next(iter(unreadable.values()))
        raise DataError(f"none of the {len(pictures)} pictures can be read; the first: {why}")
    for number, why in unreadable.items():
        rows[number] = Row(pictures.names[number], None, None, None, f"unreadable: {why}")
    after, before = (_accuracy([(part[which], part[2]) for part in scores]) for which in (0, 1))
    return Predictions(
        rows=[rows[number] for number in range(len(pictures))],
        adapter=adapter,
        batches=count,
        unadapted=unadapted,
        unreadable={pictures.names[number]: why for number, why in sorted(unreadable.items())},
        labelled=sum(len(known) for _, _, known in scores),
        accuracy=after,
        accuracy_before=before,
        remark=remark,
    )


def _accuracy(scores: list[tuple[Tensor, Tensor]]) -> float | None:
    """Pool (logits, labels) over all batches; None where no picture has a label."""
    if not scores:
        return None
    logits, labels = (torch.cat(list(part)) for part in zip(*scores, strict=True))
    return metrics.accuracy(logits, labels)


def _record(
    rows: dict[int, Row],
    numbers: list[int],
    logits: Tensor,
    names: Sequence[str],
    pictures: Pictures,
    skipped: str | None,
) -> None:
    probability, answer = logits.softmax(dim=1).max(dim=1)
    remark = f"not adapted: {skipped}" if skipped else ""
    columns = (answer.tolist(), probability.tolist(), energy(logits).tolist())
    for number, best, p, e in zip(numbers, *columns, strict=True):
        rows[number] = Row(pictures.names[number], names[best] if names else str(best), p, e, remark)


def batches(
    pictures: Pictures,
    order: NDArray[np.int64],
    batch_size: int,
    size: int | None,
    channels: int,
    unreadable: dict[int, str],
) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
    """Decode in order and yield full batches of what can be read: (numbers, uint8 (B, H, W, C))."""
    pending: list[tuple[int, NDArray[np.uint8]]] = []

    def read(number: int) -> NDArray[np.uint8] | str:
        try:
            return pictures.read(number, size, channels)
        except DataError as error:
            return " ".join(str(error).split())

    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(order), batch_size):
            chunk = [int(number) for number in order[start : start + batch_size]]
            for number, found in zip(chunk, pool.map(read, chunk), strict=True):
                if isinstance(found, str):
                    unreadable[number] = found
                else:
                    pending.append((number, found))
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
