"""Pictures to predict: a folder of files, flat or with a folder for each class, or one .npy array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import as_images, read_npy, resized
from steep.data.picture_files import PICTURES, picture
from steep.errors import DataError, InputError

_NAMED = (*PICTURES, ".avif", ".heic", ".heif")  # the last need a newer Pillow, or a plug-in: their rows say so


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
                remark = (
                    f"{len(tops)} folders for {count} classes: accuracy not measured (--classes FILE)" if tops else None
                )
                return [None] * len(self), (), remark
            classes = tops
        index = {name: number for number, name in enumerate(classes)}
        found = [next((index[f] for f in reversed(folders) if f in index), None) for folders in self.folders]
        remark = None
        strangers = [i for i, label in enumerate(found) if label is None]
        if tops and len(strangers) == len(found):
            remark = f"no folder is named like a class ({', '.join(tops[:3])}, …): accuracy not measured"
        elif tops and strangers:
            first = self.names[strangers[0]]
            remark = f"{len(strangers)} pictures lie in no folder of a class, such as {first}: accuracy is without them"
        return found, tuple(classes), remark


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
    if place.suffix == ".npy":
        return _array(place)
    if not place.is_dir():
        raise DataError(f"{place}: expected a folder of pictures or a .npy file, got {_what(place)}")
    files = sorted(_below(place))
    if not files:
        raise DataError(f"{place}: no picture in it or below it ({', '.join(PICTURES)})")
    inside = [file.relative_to(place) for file in files]

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        return _planes(picture(files[index], size), channels)

    # As text throughout: a folder may become the name of a class, and its bytes may be no UTF-8.
    folders = tuple(tuple(map(_text, file.parts[:-1])) for file in inside)
    return Pictures(tuple(_text(file.as_posix()) for file in inside), folders, read)


def _below(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Find what is named as a picture, behind links too; one that cannot be read is found out when it is read."""
    real = folder.resolve()
    if real in above:  # a link that leads back
        return
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in shown:
        path = folder / entry.name
        if entry.is_dir():
            yield from _below(path, (*above, real))
        elif path.suffix.lower() in _NAMED:
            yield path


def _array(file: Path) -> Pictures:
    if not file.is_file():
        raise DataError(f"{file}: expected a folder of pictures or a .npy file, got {_what(file)}")
    images = as_images(read_npy(file), str(file))

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        one = np.array(images[index : index + 1])
        return _planes((one if size is None else resized(one, size))[0], channels)

    return Pictures(tuple(f"{file.name}[{i}]" for i in range(len(images))), ((),) * len(images), read)


def _planes(pixels: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Bring (H, W, C) to 1 or 3 planes; the usual weighted sum leaves a grey picture exactly as it was."""
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


def _what(path: Path) -> str:
    return f"a {path.suffix or 'plain'} file" if path.is_file() else "nothing there"
