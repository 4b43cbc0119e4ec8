"""Pictures in files: one, many of one size, a folder for each class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import Images
from steep.data.declaration import Decoded
from steep.errors import DataError
from steep.pictures import open_picture

if TYPE_CHECKING:
    from PIL import Image

PICTURES = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")


def picture(file: Path | BinaryIO, size: int | None = None) -> NDArray[np.uint8]:
    """Decode a picture to uint8 RGB (H, W, 3), the right way up, resized to a square of `size` where given."""
    from PIL import Image

    with open_picture(file) as stored:
        opened = _upright(stored)
        if opened.mode in ("I", "F"):  # Pillow would cut every value off at 255
            raise ValueError("32 bits a value: save it with 8 or 16, so that its range is known")
        deep = opened.mode.startswith("I;16")  # Pillow would cut these off too
        rgb = (Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8)) if deep else opened).convert("RGB")
        if size is not None and rgb.size != (size, size):
            rgb = rgb.resize((size, size), Image.Resampling.BILINEAR)
        return np.array(rgb)


def _upright(opened: Image.Image) -> Image.Image:
    """Turn a picture as its camera says it was held."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(opened)
    except Exception:  # Pillow raises many kinds over notes of a camera that are damaged; the picture is not
        return opened


def pictures(paths: list[Path], size: int | None = None) -> Images:
    """Decode picture files of one size to (N, H, W, 3)."""
    if not paths:
        raise DataError("no pictures were found")
    first = picture(paths[0], size)
    out = np.empty((len(paths), *first.shape), np.uint8)

    def put(index: int) -> None:
        pixels = picture(paths[index], size)
        if pixels.shape != first.shape:
            raise DataError(
                f"{paths[index]}: {pixels.shape[1]} × {pixels.shape[0]} pixels, but {paths[0].name} has "
                f"{first.shape[1]} × {first.shape[0]}. Give size= to bring all to one size"
            )
        out[index] = pixels

    with ThreadPoolExecutor(4) as pool:  # Pillow decodes outside the interpreter lock
        for _ in pool.map(put, range(len(paths)), chunksize=64):
            pass
    return out


def natural(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts picture 9 before picture 10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def pictures_in(folder: Path) -> list[Path]:
    """List the picture files of a folder, picture 9 before picture 10."""
    return sorted((file for file in folder.iterdir() if file.suffix.lower() in PICTURES), key=natural)


def class_names(*folders: Path) -> tuple[str, ...]:
    """Return the names of all class folders, sorted; empty ones too, since leaving one out moves every later label."""
    names = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()}
    return tuple(sorted(name for name in names if not name.startswith((".", "__"))))  # .git, __MACOSX


def from_class_folders(folder: Path, size: int | None = None, classes: Sequence[str] = ()) -> Decoded:
    """Decode a folder-per-class directory; labels index `classes`, by default its folders in the order of their names.

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
    return Decoded(pictures(paths, size), labels.astype(np.int64), names)
