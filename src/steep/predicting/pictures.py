"""Pictures to predict: a folder of files, flat or with a folder for each class, or one .npy array."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import as_images, read_npy, resized
from steep.data.picture_files import PICTURES, picture
from steep.data.transform import Transform
from steep.errors import DataError, InputError

_THREADS = 4  # Pillow decodes outside the interpreter lock
_SUFFIXES = (*PICTURES, ".avif", ".heic", ".heif")  # the last need a newer Pillow, or a plug-in: their rows say so


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures by number. `names` are what the table calls them; `folders` those each lies in, outermost first.

    `read(index, size, channels)` decodes one to uint8 (H, W, C), or raises `DataError`.
    """

    names: tuple[str, ...]
    folders: tuple[tuple[str, ...], ...]
    read: Callable[[int, int | None, int], NDArray[np.uint8]]

    def __len__(self) -> int:
        return len(self.names)

    def order(self, shuffle: bool | None, seed: int) -> NDArray[np.int64]:
        """Choose an order to answer in; None: a random one where most lie in folders, as by class.

        A batch of one class misleads every method; one picture beside the class folders must not bring that back.
        """
        order = np.arange(len(self))
        mixed = 2 * sum(map(bool, self.folders)) > len(self) if shuffle is None else shuffle
        return np.random.default_rng(seed).permutation(order) if mixed else order

    def labels(self, classes: Sequence[str], count: int) -> tuple[list[int | None], tuple[str, ...], str | None]:
        """Read labels off the folders: (a class index or None for each picture, the class names, a remark).

        Where the class names are known, the innermost folder that bears one decides. Where they are not, and there
        are as many outermost folders as the model has classes, those are the classes, sorted.

        >>> some = Pictures(("cat/a.png", "dog/b.png"), (("cat",), ("dog",)), read=lambda index, size, channels: None)
        >>> some.labels((), count=2)
        ([0, 1], ('cat', 'dog'), None)
        >>> some.labels(("bird", "cat"), count=2)[0]
        [1, None]
        """
        tops = sorted({folders[0] for folders in self.folders if folders})
        if not classes:
            if len(tops) != count or not all(self.folders):
                unmatched = f"{len(tops)} folders for {count} classes: accuracy not measured (--classes FILE)"
                return [None] * len(self), (), unmatched if tops else None
            classes = tops
        index = {name: number for number, name in enumerate(classes)}
        labels = [next((index[f] for f in reversed(folders) if f in index), None) for folders in self.folders]
        unlabelled = [name for name, label in zip(self.names, labels, strict=True) if label is None]
        remark: str | None = None
        if tops and len(unlabelled) == len(labels):
            remark = f"no folder is named like a class ({', '.join(tops[:3])}, …): accuracy not measured"
        elif tops and unlabelled:
            remark = (
                f"{len(unlabelled)} pictures, such as {unlabelled[0]}, are in no class folder: accuracy leaves them out"
            )
        return labels, tuple(classes), remark

    def batches(
        self, order: NDArray[np.int64], size: int | None, channels: int, batch_size: int, unreadable: dict[int, str]
    ) -> Iterator[tuple[list[int], NDArray[np.uint8]]]:
        """Decode in order and yield full batches: (numbers, uint8 (B, H, W, C)).

        Why others could not be read goes to `unreadable`.
        """

        def read(number: int) -> NDArray[np.uint8] | None:
            try:
                return self.read(number, size, channels)
            except DataError as error:
                unreadable[number] = " ".join(str(error).split())
                return None

        chunks = (order[start : start + batch_size].tolist() for start in range(0, len(order), batch_size))
        with ThreadPoolExecutor(_THREADS) as pool:
            decoded = (pair for chunk in chunks for pair in zip(chunk, pool.map(read, chunk), strict=True))
            readable = ((number, pixels) for number, pixels in decoded if pixels is not None)
            while batch := list(islice(readable, batch_size)):
                yield [number for number, _ in batch], self._stacked(batch)

    def _stacked(self, batch: list[tuple[int, NDArray[np.uint8]]]) -> NDArray[np.uint8]:
        first, shape = self.names[batch[0][0]], batch[0][1].shape
        for number, pixels in batch:
            if pixels.shape != shape:
                raise InputError(
                    f"{self.names[number]}: {pixels.shape[1]} × {pixels.shape[0]} pixels, but {first} has "
                    f"{shape[1]} × {shape[0]}. Give --size to bring all to one size"
                )
        return np.stack([pixels for _, pixels in batch])


def open_pictures(path: str | os.PathLike[str]) -> Pictures:
    """Find the pictures below a folder (sorted, hidden files left out), or map those of a .npy (N, H, W, C) uint8.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/two.npy", np.zeros((2, 4, 4, 3), np.uint8))
    ...     pictures = open_pictures(f"{folder}/two.npy")
    >>> pictures.names, pictures.read(0, 2, 1).shape
    (('two.npy[0]', 'two.npy[1]'), (2, 2, 1))
    """
    place = Path(path).expanduser()
    if place.suffix == ".npy" and place.is_file():
        return _open_array(place)
    if not place.is_dir():
        kind = f"a {place.suffix or 'plain'} file" if place.is_file() else "nothing there"
        raise DataError(f"{place}: expected a folder of pictures or a .npy file, got {kind}")
    unlisted, files = _walk(place)
    if not files:
        why = f"; {next(iter(unlisted.values()))}" if unlisted else ""
        raise DataError(f"{place}: no picture in it or below it ({', '.join(PICTURES)}){why}")
    paths = sorted([*files, *unlisted])

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        if paths[index] in unlisted:
            raise DataError(unlisted[paths[index]])
        return _with_channels(picture(paths[index], Transform(size=size)), channels)

    # As text throughout: a folder may become the name of a class, and its bytes may be no UTF-8.
    inside = [tuple(map(_text, file.relative_to(place).parts)) for file in paths]
    return Pictures(tuple("/".join(parts) for parts in inside), tuple(parts[:-1] for parts in inside), read)


def _walk(top: Path) -> tuple[dict[Path, str], list[Path]]:
    """Find what is named as a picture, and the folders that cannot be listed: (folder → why, files).

    Each folder is listed once, however many links lead to it. Real folders come first: a link takes nothing from them.
    """
    files: list[Path] = []
    unlisted: dict[Path, str] = {}
    seen: set[tuple[int, int]] = set()
    folders, links = deque([top]), deque[Path]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted((entry for entry in listing if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:  # no permission, or a path too long for the system
            unlisted[folder] = f"{folder}: this folder cannot be listed ({error.strerror})"
            continue
        for entry in entries:
            path = folder / entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif entry.is_symlink() and os.path.isdir(path):  # False for a link that leads to itself
                links.append(path)
            elif path.suffix.lower() in _SUFFIXES:
                files.append(path)
    return unlisted, files


def _open_array(file: Path) -> Pictures:
    images = as_images(read_npy(file), str(file))

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        one = np.array(images[index : index + 1])
        return _with_channels((one if size is None else resized(one, size))[0], channels)

    return Pictures(tuple(f"{file.name}[{i}]" for i in range(len(images))), ((),) * len(images), read)


def _with_channels(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Bring (H, W, C) to 1 or 3 channels; the usual weighted sum leaves a grey picture exactly as it was."""
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    if channels != 1:
        raise InputError(f"channels: expected a model that takes 1 or 3, got {channels}")
    from PIL import Image

    return np.array(Image.fromarray(pixels).convert("L"))[..., None]


def _text(name: str) -> str:
    """Write a name as text, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
