"""Pictures in files: one, many of one size, a folder for each class."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import Images
from steep.data.declaration import Decoded
from steep.data.streamed import StreamedImages
from steep.data.transform import AS_IT_IS, Transform
from steep.errors import DataError
from steep.pictures import open_picture

PICTURES = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")
MANIFEST = "steep-corruptions.json"  # in a folder of corrupted sets that steep wrote
_LARGE = 1 << 25  # pixels
_ALONE = threading.Lock()  # large pictures one after the other: memory does not grow with the number of threads


def picture(file: Path | BinaryIO, how: Transform = AS_IT_IS) -> NDArray[np.uint8]:
    """Decode a picture to uint8 RGB (H, W, 3), the right way up, in the size that is asked for."""
    from PIL import Image, ImageOps

    with open_picture(file) as opened, _ALONE if opened.width * opened.height > _LARGE else contextlib.nullcontext():
        with contextlib.suppress(Exception):  # Pillow raises many kinds over damaged notes of a camera
            ImageOps.exif_transpose(opened, in_place=True)
        if opened.mode in ("I", "F"):  # Pillow would cut every value off at 255
            raise ValueError("32 bits a value: save it with 8 or 16, so that its range is known")
        deep = opened.mode.startswith("I;16")  # Pillow would cut these off too
        rgb = (Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)) if deep else opened).convert("RGB")
        sides, cut = how.box(*rgb.size)
        if how.crop and math.prod(sides) > max(_LARGE, math.prod(rgb.size)):  # a line would become of any length
            raise ValueError(f"{rgb.width} × {rgb.height} pixels are too narrow to be resized to {how.size}")
        if rgb.size != sides:
            rgb = rgb.resize(sides, getattr(Image.Resampling, how.interpolation.upper()))
        return np.array(rgb if cut == (0, 0, *sides) else rgb.crop(cut))


def file_images(paths: Sequence[Path], folder: Path, how: Transform = AS_IT_IS) -> Images:
    """Take picture files for an array (N, H, W, 3); nothing is decoded, but the first where only it can tell a size."""
    if not paths:
        raise DataError(f"{folder}: no pictures were found")
    names = [path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name for path in paths]

    def read(number: int) -> NDArray[np.uint8]:
        try:
            return picture(paths[number], how)
        except DataError as error:
            why = str(error).replace(str(paths[number]), names[number])  # no folder of this machine in a row
            raise DataError(why.removeprefix(f"{names[number]}: ")) from error

    one = (how.size, how.size, 3) if how.size else _first_shape(paths)
    about = hashlib.sha256(repr(how).encode())
    for name, path in zip(names, paths, strict=True):
        size = path.stat().st_size if path.exists() else None
        about.update(f"{name} {size}\n".encode(errors="surrogateescape"))
    rows = np.arange(len(paths))
    return cast("Images", StreamedImages(read=read, names=names, one=one, origin=about.hexdigest(), rows=rows))


def _first_shape(paths: Sequence[Path]) -> tuple[int, ...]:
    """The shape of the first picture that can be read; where none can, an error about the last."""
    for path in paths[:-1]:
        with contextlib.suppress(DataError):
            return picture(path).shape
    return picture(paths[-1]).shape


def natural(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts picture 9 before picture 10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def pictures_in(folder: Path) -> list[Path]:
    """List the picture files of a folder, picture 9 before picture 10."""
    return sorted((file for file in folder.iterdir() if file.suffix.lower() in PICTURES), key=natural)


def class_names(*folders: Path) -> tuple[str, ...]:
    """Return the names of all class folders, sorted; empty ones too, since leaving one out moves every later label."""
    below = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()]
    names = {entry.name for entry in below if not (entry / MANIFEST).exists()}
    return tuple(sorted(name for name in names if not name.startswith((".", "__"))))  # .git, __MACOSX


def from_list(file: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """Read a list file, a path below `folder` and a label in each line: (paths, labels as they are written).

    The label is the last word, after a space or a comma: what stands before it may hold spaces and commas itself.
    """
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = [re.fullmatch(r"(.*[^\s,])(?:\s*,\s*|\s+)([^\s,]+)", line) for line in lines]
    if not rows or not all(rows):
        wrong = f", got {next(line for line, row in zip(lines, rows, strict=True) if not row)!r}" if rows else ""
        raise DataError(f"{file}: expected a path and a label in each line, such as a.jpg 7 or a.jpg,7{wrong}")
    return [folder / row[1] for row in rows if row], [row[2] for row in rows if row]


def from_class_folders(folder: Path, how: Transform = AS_IT_IS, classes: Sequence[str] = ()) -> Decoded:
    """List a folder-per-class directory; labels index `classes`, by default its folders in the order of their names.

    A folder with pictures that is none of `classes` is refused: its pictures have no label.
    """
    files = {}
    for name in class_names(folder):
        inner = folder / name / "images"  # Tiny-ImageNet's train folders have one more level
        files[name] = pictures_in(inner if inner.is_dir() else folder / name)
    names = tuple(classes) or tuple(files)
    if strange := sorted(name for name in files if files[name] and name not in names):
        raise DataError(f"{folder}: expected pictures of {', '.join(names[:10])} …, found a folder {strange[0]!r} too")
    paths = [path for name in names for path in files.get(name, [])]
    if not paths:
        raise DataError(f"{folder}: expected one folder of pictures per class, found none")
    labels = np.repeat(np.arange(len(names)), [len(files.get(name, [])) for name in names])
    return Decoded(file_images(paths, folder, how), labels.astype(np.int64), names)
