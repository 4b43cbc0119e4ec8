"""Pictures that stay in their files: an array of which a part is decoded when it is asked for.

Indexing and slicing only choose; `np.asarray` decodes, several pictures at a time. So a set of any size has an order, a
limit and a length without being in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from steep.errors import DataError

Picture: TypeAlias = NDArray[np.uint8]  # (H, W, C)
Read: TypeAlias = Callable[[int], Picture]  # raises DataError for a picture that cannot be read

AHEAD = 2  # batches that are decoded while one is answered


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamedImages:
    """Stands for uint8 (N, H, W, C). `rows` are the numbers that `read` and `names` know the pictures by.

    `unreadable` says of each picture that could not be read why; it fills as pictures are decoded.
    """

    read: Read
    names: Sequence[str]
    one: tuple[int, ...]  # (H, W, C) of every picture
    origin: str  # sha256 of what decides the pictures: their files and what is done to them
    rows: NDArray[np.int64]
    unreadable: dict[str, str] = field(default_factory=dict)  # name → why
    dtype = np.dtype(np.uint8)
    nbytes = 0  # in memory

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape they would have in memory."""
        return (len(self.rows), *self.one)

    @property
    def digest(self) -> str:
        """The sha256 of which pictures these are; of the names and sizes of their files, not of their bytes."""
        return hashlib.sha256(self.origin.encode() + self.rows.tobytes()).hexdigest()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Any) -> StreamedImages:
        return replace(self, rows=np.atleast_1d(self.rows[which]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        pixels, readable = self.decoded()
        if not all(readable):
            name, why = next(iter(self.unreadable.items()))
            raise DataError(f"{name}: {why}")
        return pixels

    def decoded(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Decode all that can be read: (pictures, a flag for each of N)."""
        (batch,) = ahead([[(self, row) for row in range(len(self))]], self.one)
        return batch

    def then(self, change: Callable[[Picture, int], Picture], what: str, one: tuple[int, ...]) -> StreamedImages:
        """Do something to every picture, by its place, once it is decoded."""
        origin = hashlib.sha256(f"{self.digest} {what}".encode()).hexdigest()
        rows = self.rows

        def changed(place: int) -> Picture:
            return change(self.read(int(rows[place])), place)

        names = [self.names[row] for row in rows]
        return replace(self, read=changed, names=names, one=one, origin=origin, rows=np.arange(len(rows)))

    def put(self, place: int, out: Picture) -> bool:
        """Decode one picture into `out`; where it cannot be read, note why and return False."""
        number = int(self.rows[place])
        try:
            pixels = self.read(number)
        except DataError as error:
            self.unreadable[self.names[number]] = " ".join(str(error).split())
            return False
        if pixels.shape != self.one:
            this, others = (f"{width} × {height}" for height, width, _ in (pixels.shape, self.one))
            fix = "Give size= to bring all to one size"
            raise DataError(f"{self.names[number]}: {this} pixels, but others have {others}. {fix}")
        out[...] = pixels
        return True


def ahead(
    batches: Iterable[Sequence[tuple[Any, int]]], one: tuple[int, ...]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.bool_]]]:
    """Decode batches of (images, place) in threads, a few batches ahead of the one that is asked for.

    What cannot be read is left out: with the pictures of a batch comes a flag for each that it should have.
    """

    def put(images: Any, place: int, out: Picture) -> bool:
        if isinstance(images, StreamedImages):
            return images.put(place, out)
        out[...] = images[place]
        return True

    def finish(pixels: NDArray[np.uint8], futures: Any) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        readable = np.array([future.result() for future in futures], bool)
        return pixels if readable.all() else pixels[readable], readable

    pool = ThreadPoolExecutor(threads())  # Pillow decodes and resizes outside the interpreter lock
    pending: deque[Any] = deque()
    try:
        for batch in batches:
            pixels = np.empty((len(batch), *one), np.uint8)
            pending.append((pixels, [pool.submit(put, *picture, pixels[i]) for i, picture in enumerate(batch)]))
            if len(pending) > max(AHEAD, 4 * threads() // max(1, len(batch))):
                yield finish(*pending.popleft())
        while pending:
            yield finish(*pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def threads() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def streamed(images: object) -> StreamedImages | None:
    """Return images that stay in their files; None for those in memory."""
    return images if isinstance(images, StreamedImages) else None
