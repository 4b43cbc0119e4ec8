"""Batches on the device, and the protocols in which shifts follow each other.

A stream is a sequence of `Segment`s. The caller resets the adapter where a segment says so and otherwise goes on:

    for segment in stream("continual", shifts, batch_size=200, device="cuda"):
        if segment.reset:
            adapter.reset()
        for x, y in segment.batches:  # x (B, C, H, W) float32 in [0, 1], y (B,) int64, both on the device
            logits = adapter(x)

Pictures stay uint8 in memory (or on disk, memory-mapped) until their batch is made; they become floats on the device.
Everything is decided by the seed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steep.core.io.feed import scaled
from steep.data.arrays import Images, ImageSet, Labels
from steep.data.streamed import ahead, streamed
from steep.errors import DataError, InputError, check_known

Order: TypeAlias = NDArray[np.int64]
Device: TypeAlias = torch.device | str


@dataclass(frozen=True, eq=False)
class Batches:
    """The pictures of one or several sets in a fixed order; can be iterated any number of times.

    `order` indexes the sets as if they were one after the other; None keeps them as they are.
    """

    sets: tuple[ImageSet, ...]
    batch_size: int
    device: torch.device
    order: Order | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"batch_size: expected 1 or more, got {self.batch_size}")
        if len({data.images.shape[1:] for data in self.sets}) > 1:
            shapes = [data.images.shape for data in self.sets]
            raise InputError(f"pictures of different shapes cannot share batches: {shapes}")

    def __len__(self) -> int:
        return -(-self.images // self.batch_size)

    @property
    def images(self) -> int:
        """How many pictures one pass yields."""
        return len(self.order) if self.order is not None else sum(map(len, self.sets))

    @property
    def streamed(self) -> bool:
        """Whether pictures stay in their files until their batch is made."""
        return any(streamed(data.images) for data in self.sets)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        labels = np.concatenate([data.labels for data in self.sets])
        for pixels, rows in self.pixels():
            yield to_device(pixels, self.device), torch.from_numpy(labels[rows]).to(self.device)

    def pixels(self) -> Iterator[tuple[Images, Order]]:
        """Yield the uint8 pictures (B, H, W, C) of each batch, and their places in the sets."""
        return self._decoded() if self.streamed else self._gathered()

    def places(self) -> Order:
        """Say which pictures, in order, a pass has yielded: all but those that could not be read."""
        order = self._order()
        return order[~np.concatenate([_unreadable(data) for data in self.sets])[order]] if self.streamed else order

    def _order(self) -> Order:
        return np.arange(self.images) if self.order is None else self.order

    def _rows(self) -> Iterator[Order]:
        order = self._order()
        return (order[start : start + self.batch_size] for start in range(0, self.images, self.batch_size))

    def _gathered(self) -> Iterator[tuple[Images, Order]]:
        """Copy the rows of each batch out of the sets, which may be read-only maps of files."""
        ends = np.cumsum([len(data) for data in self.sets])
        for rows in self._rows():
            which = np.searchsorted(ends, rows, side="right")
            pixels = np.empty((len(rows), *self.sets[0].images.shape[1:]), np.uint8)
            for index in np.unique(which):
                at = np.flatnonzero(which == index)
                pixels[at] = self.sets[index].images[rows[at] - (ends[index] - len(self.sets[index]))]
            yield pixels, rows

    def _decoded(self) -> Iterator[tuple[Images, Order]]:
        """Decode the pictures of each batch, ahead of time; those that cannot be read are missing from it."""
        places = [(data.images, place) for data in self.sets for place in range(len(data))]
        batches = ([places[row] for row in rows] for rows in self._rows())
        nothing = True
        for rows, (pixels, readable) in zip(self._rows(), ahead(batches, self.sets[0].images.shape[1:]), strict=True):
            if len(pixels):
                nothing = False
                yield pixels, rows[readable]
        if nothing:
            name, why = next(iter(self.sets[0].left_out.items()))
            raise DataError(f"{self.sets[0].name}: no picture can be read; {name}: {why}")


def to_device(images: Images, device: Device = "cpu") -> Tensor:
    """Move uint8 (B, H, W, C) pictures to the device and make them float32 (B, C, H, W) in [0, 1] there.

    >>> to_device(np.full((1, 2, 2, 3), 255, np.uint8)).shape
    torch.Size([1, 3, 2, 2])
    """
    return to_floats(torch.from_numpy(np.asanyarray(images)).to(device))


def to_floats(images: Tensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    """Make uint8 (B, H, W, C) pictures float32 (B, C, H, W) in [0, 1], where they are.

    >>> to_floats(torch.full((1, 2, 2, 3), 51, dtype=torch.uint8)).unique()
    tensor([0.2000])
    """
    return scaled(images.permute(0, 3, 1, 2), memory_format)


def batches(
    data: ImageSet,
    batch_size: int = 200,
    *,
    device: Device = "cpu",
    shuffle: int | None = None,
    order: Order | None = None,
) -> Batches:
    """Batch one set: as it is, shuffled with a seed, or in an order of its own (such as `label_shift`).

    >>> from steep.data import load
    >>> x, y = next(iter(batches(load("digits"), 64)))
    >>> x.shape, x.dtype, y.shape
    (torch.Size([64, 1, 8, 8]), torch.float32, torch.Size([64]))
    """
    if shuffle is not None and order is not None:
        raise InputError("batches: give shuffle= or order=, not both")
    if shuffle is not None:
        order = np.random.default_rng(shuffle).permutation(len(data))
    return Batches((data,), batch_size, torch.device(device), order)


@dataclass(frozen=True, eq=False)
class Shift:
    """One shift of the test data. `source` may be a function, so that a long list of shifts costs no memory."""

    name: str
    severity: int
    source: ImageSet | Callable[[], ImageSet]

    def load(self) -> ImageSet:
        """Return the pictures."""
        return self.source if isinstance(self.source, ImageSet) else self.source()


@dataclass(frozen=True, eq=False)
class Segment:
    """A stretch of a stream under one shift. With `reset` the caller goes back to the source model before it.

    With a `pace` the stream does not wait: a batch comes in the time of so many forward passes over it, and one that
    comes while a step is under way is answered by the model as it is (`Adapter.peek`) and not learnt from.
    """

    name: str
    severity: int
    batches: Batches
    reset: bool
    pace: float | None = None


Segments: TypeAlias = Iterator[Segment]


def reset_per_shift(shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu") -> Segments:
    """Every shift from the source model again: the protocol of the TEA paper."""
    for shift in shifts:
        batches = Batches((shift.load(),), batch_size, torch.device(device))
        yield Segment(shift.name, shift.severity, batches, reset=True)


def continual(shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu") -> Segments:
    """One shift after the other with no reset between."""
    segments = reset_per_shift(shifts, batch_size, device=device)
    return (replace(segment, reset=index == 0) for index, segment in enumerate(segments))


def gradual(shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu") -> Segments:
    """Each kind of shift grows to its worst and fades again (1 → 5 → 1), kinds in the order given, no reset between."""
    kinds: dict[str, dict[int, Shift]] = {}
    for shift in shifts:
        kinds.setdefault(shift.name, {})[shift.severity] = shift
    path = []
    for kind in kinds.values():
        rising = sorted(kind)
        path += [kind[severity] for severity in (*rising, *rising[-2::-1])]
    return continual(path, batch_size, device=device)


def mixed(shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu", seed: int = 0) -> Segments:
    """All pictures of all shifts in one random order: every batch holds many kinds."""
    sets = tuple(shift.load() for shift in shifts)
    if sets:
        order = np.random.default_rng(seed).permutation(sum(map(len, sets)))
        batches = Batches(sets, batch_size, torch.device(device), order)
        yield Segment("mixed", max(shift.severity for shift in shifts), batches, reset=True)


def recurring(shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu", rounds: int = 20) -> Segments:
    """All shifts one after the other, again and again, with no reset between (20 rounds: PeTTA, NeurIPS 2024)."""
    if rounds < 1:
        raise InputError(f"rounds: expected 1 or more, got {rounds}")
    return continual([*shifts] * rounds, batch_size, device=device)


def limited_time(
    shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu", pace: float = 1.0
) -> Segments:
    """As `reset`, but the stream does not wait for a slow method: it misses batches (Alfarra et al., ICML 2024)."""
    if not 0 < pace < math.inf:
        raise InputError(f"pace: expected a number more than 0, got {pace}")
    return (replace(segment, pace=pace) for segment in reset_per_shift(shifts, batch_size, device=device))


def mixed_label_shifted(
    shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu", delta: float = 0.1, seed: int = 0
) -> Segments:
    """All pictures of all shifts in one stream, its classes coming in bursts: many kinds, few classes in a batch."""
    return _in_bursts(mixed(shifts, batch_size, device=device), delta, seed)


def label_shifted(
    shifts: Sequence[Shift], batch_size: int = 200, *, device: Device = "cpu", delta: float = 0.1, seed: int = 0
) -> Segments:
    """Every shift from the source model again, its classes coming in bursts (see `label_shift`)."""
    return _in_bursts(reset_per_shift(shifts, batch_size, device=device), delta, seed)


def _in_bursts(segments: Segments, delta: float, seed: int) -> Segments:
    for segment in segments:
        labels = np.concatenate([data.labels for data in segment.batches.sets])
        order = label_shift(labels, delta, seed=seed)
        yield replace(segment, batches=replace(segment.batches, order=order))


def label_shift(labels: Labels, delta: float = 0.1, *, seed: int = 0, slots: int | None = None) -> Order:
    """Order pictures so that classes come in bursts.

    Time is cut into `slots` (by default as many as there are classes). The pictures of each class are spread over them
    with proportions drawn from a Dirichlet distribution with concentration `delta`: the smaller, the burstier. Each
    picture comes exactly once.

    >>> order = label_shift(np.arange(1000) % 10, 0.1, seed=1)
    >>> bool((np.sort(order) == np.arange(1000)).all())
    True
    """
    if not 0 < delta < math.inf:  # nan is neither
        raise InputError(f"delta: expected a number more than 0, got {delta}")
    kinds = np.unique(labels)
    count = slots if slots is not None else len(kinds)
    if count < 1:
        raise InputError(f"slots: expected 1 or more, got {count}")
    draw = np.random.default_rng(seed)
    filled: list[list[Order]] = [[] for _ in range(count)]
    for kind in kinds:
        members = draw.permutation(np.flatnonzero(labels == kind))
        cuts = (np.cumsum(draw.dirichlet(np.full(count, delta)))[:-1] * len(members)).round().astype(int)
        for slot, piece in zip(filled, np.split(members, cuts), strict=True):
            slot.append(piece)
    return np.concatenate([draw.permutation(np.concatenate(slot)) for slot in filled])


PROTOCOLS: dict[str, Callable[..., Segments]] = {
    "reset": reset_per_shift,
    "continual": continual,
    "gradual": gradual,
    "mixed": mixed,
    "label-shift": label_shifted,
    "mixed-label-shift": mixed_label_shifted,
    "recurring": recurring,
    "limited-time": limited_time,
}
"""The protocols by name."""

# The protocols in which every shift begins at the source model: each is a stream by itself.
APART = ("reset", "label-shift", "limited-time")


def knobs(protocol: str) -> dict[str, Any]:
    """What can be chosen of a protocol besides batch size and device, with the usual values."""
    parameters = inspect.signature(PROTOCOLS[protocol]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "device"}


def stream(
    protocol: str,
    shifts: Sequence[Shift],
    batch_size: int = 200,
    *,
    device: Device = "cpu",
    seed: int = 0,
    delta: float = 0.1,
    rounds: int = 20,
    pace: float = 1.0,
) -> Segments:
    """Run shifts in a protocol by name; the other numbers matter only to the protocols that take them.

    >>> from steep.data import load
    >>> shifts = [Shift("clean", 0, load("digits"))]
    >>> [(segment.name, segment.reset, len(segment.batches)) for segment in stream("reset", shifts, 200)]
    [('clean', True, 3)]
    """
    check_known("protocol", PROTOCOLS, protocol)
    chosen = {"seed": seed, "delta": delta, "rounds": rounds, "pace": pace}
    return PROTOCOLS[protocol](shifts, batch_size, device=device, **{name: chosen[name] for name in knobs(protocol)})


def _unreadable(data: ImageSet) -> NDArray[np.bool_]:
    if (files := streamed(data.images)) is None:
        return np.zeros(len(data), bool)
    return np.array([files.names[row] in files.unreadable for row in files.rows], bool)
