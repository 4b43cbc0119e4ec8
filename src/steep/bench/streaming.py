"""Run an adapter over the stream of a cell. Logits stay on the device until the end.

Somebody who watches costs a wait for the device at most twice a second; nobody watching costs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steep.bench.adapters import now
from steep.bench.estimate import passes
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.dist.group import Group
from steep.data import Batches, ImageSet, Shift, stream, to_floats
from steep.data.streams import knobs
from steep.errors import InputError

OnProgress: TypeAlias = Callable[[int, int, float | None], None]
"""Called now and then with (images done, images in all, accuracy so far)."""

_RESIDENT = 4 << 30  # bytes of uint8 images that may live on the device at once
_PROGRESS_EVERY = 0.5  # seconds
LEISURE = 2  # passes that an answer may take where a stream does not wait: it costs no time, so it must not be long


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers and labels of a segment of a stream, on the device."""

    name: str
    severity: int
    reset: bool
    logits: Tensor  # (N, K)
    labels: Tensor  # (N,)
    places: NDArray[np.int64]  # (N,), of the images in the sets, one set after the other
    origin: Tensor | None = None  # (N,), which shift of a mixed stream an image came from


@dataclass(frozen=True, eq=False)
class Streamed:
    """What running a stream gave: its segments in order and the seconds the adapter took."""

    segments: list[Answers]
    seconds: float
    undone: int  # steps the guard has undone
    missed: int  # batches that came while a step was under way, where the stream does not wait


def run_stream(
    adapter: Adapter,
    cell: Cell,
    sets: Sequence[ImageSet],
    device: torch.device,
    on_progress: OnProgress | None = None,
    group: Group | None = None,
) -> Streamed:
    """Show an adapter the whole stream of a cell; in a group, each rank its part of every batch."""
    shifts = [Shift(name, level, data) for (name, level), data in zip(cell.shifts, sets, strict=True)]
    size = cell.batch_size or max(map(len, sets))
    chosen = {name: getattr(cell, name) for name in knobs(cell.protocol) if getattr(cell, name) is not None}
    if cell.pace is not None and group is not None:
        raise InputError(f"protocol {cell.protocol}: expected one process, got {group.size} ranks. Use one device")
    cost = 0.0 if cell.pace is None else passes(cell) / cell.pace  # of a step, in batches that come meanwhile
    segments: list[Answers] = []
    undone = missed = 0
    progress = _Progress(on_progress, sum(map(len, sets)) * (2 if cell.protocol == "gradual" else cell.rounds or 1))
    begun = now(device)
    for segment in stream(cell.protocol, shifts, size, device=device, **chosen):
        if segment.reset and segments:
            undone += _undone(adapter, cell)  # a reset forgets the count
            adapter.reset()
        logits, labels, busy = [], [], 0.0  # until which batch a step takes
        for place, (x, y) in enumerate(resident(segment.batches, group)):
            if place < busy:
                answer = adapter.peek(x, plain=adapter.method.answer_passes() > LEISURE)
                missed += 1
            else:
                answer = adapter(x)
                busy = place + cost
            if group is not None:
                answer = group.gather(answer, group.parts(len(y)))
            logits.append(answer)
            labels.append(y)
            progress.add(answer, y)
        answers = torch.cat(logits), torch.cat(labels), segment.batches.places(), _origin(segment.batches)
        segments.append(Answers(segment.name, segment.severity, segment.reset, *answers))
    seconds = max(now(device) - begun, 1e-9)
    return Streamed(segments, seconds, undone + _undone(adapter, cell), missed)


def resident(source: Batches, group: Group | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the batches of a stream from images that were moved to the device once, where they fit.

    In a group, images are this rank's part of a batch, labels those of all of it.
    """
    if source.streamed or sum(data.images.nbytes for data in source.sets) > _RESIDENT:
        for x, y in source:
            yield (x if group is None else x[group.part(len(x))]), y
        return
    pixels = torch.cat([torch.from_numpy(np.array(data.images)).to(source.device) for data in source.sets])
    labels = torch.cat([torch.from_numpy(np.array(data.labels)).to(source.device) for data in source.sets])
    order = None if source.order is None else torch.from_numpy(source.order).to(source.device)
    for start in range(0, source.images, source.batch_size):
        whole = slice(start, min(start + source.batch_size, source.images))
        part = slice(0, whole.stop - start) if group is None else group.part(whole.stop - start)
        part = slice(start + part.start, start + part.stop)
        x = to_floats(pixels[part if order is None else order[part]])
        yield x, labels[whole if order is None else order[whole]]


def _undone(adapter: Adapter, cell: Cell) -> int:
    """Ask the guard what it has undone since the last reset, which waits for the device; without a guard, nothing."""
    report = adapter.last if cell.guard != "off" else None
    return 0 if report is None else report.undone


def _origin(mixed: Batches) -> Tensor | None:
    if len(mixed.sets) == 1:
        return None
    ends = np.cumsum([len(data) for data in mixed.sets])
    return torch.from_numpy(np.searchsorted(ends, mixed.places(), side="right")).to(mixed.device)


class _Progress:
    """Counts right answers on the device and reports them now and then."""

    def __init__(self, on_progress: OnProgress | None, total: int) -> None:
        self.on_progress, self.total = on_progress, total
        self.images, self.reported = 0, time.monotonic()
        self.right: Tensor | int = 0

    def add(self, logits: Tensor, labels: Tensor) -> None:
        if self.on_progress is None:
            return
        self.right = self.right + (logits.argmax(dim=1) == labels).sum()
        self.images += len(labels)
        if time.monotonic() - self.reported >= _PROGRESS_EVERY:
            self.on_progress(self.images, self.total, int(self.right) / self.images)
            self.reported = time.monotonic()
