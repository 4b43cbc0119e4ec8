"""Arrays of pictures on disk and in memory: their types, the one shape of a set, checksums, reading and writing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from steep.data.streamed import streamed
from steep.errors import DataError
from steep.files import writing

Images: TypeAlias = NDArray[np.uint8]  # (N, H, W, C)
Labels: TypeAlias = NDArray[np.int64]  # (N,)

MOST_CLASSES = 100_000  # a name is made for every class, so one absurd label must not ask for 2⁴⁰ of them


class Subset(NamedTuple):
    """Those outputs of a model that count, where a set has only some of the classes the model knows."""

    outputs: tuple[int, ...]
    of: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Pictures with their labels.

    `images` are uint8 (N, H, W, C), possibly memory-mapped and read-only, or still in their files (`StreamedImages`);
    they become floats only on the device (see `steep.data.batches`). `origin` says where the bytes came from and
    `digest` is the sha256 of `images`.
    """

    images: Images
    labels: Labels  # (N,)
    classes: tuple[str, ...]
    name: str
    split: str
    origin: str
    digest: str
    subset: Subset | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)  # pictures that could not be read, and why

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.images.shape))
        return f"ImageSet({self.name}/{self.split}, {shape}, {len(self.classes)} classes, {self.origin})"


def sha256(array: NDArray[Any]) -> str:
    """Return the sha256 of an array's bytes in C order; a memory-mapped one stays on disk."""
    if (files := streamed(array)) is not None:
        return files.digest
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def write_npy(path: Path, array: NDArray[Any]) -> None:
    """Write a .npy file, whole or not at all."""
    with writing(path) as file:
        write_header(file, array.shape, array.dtype)
        file.write(np.ascontiguousarray(array).data)  # not array.tofile: it hides the errno of a full disk


def write_header(file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Write the header of a C-order .npy file, so that its data can follow in pieces."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def read_npy(path: Path) -> NDArray[Any]:
    """Memory-map a .npy file. Pickled, truncated and overlong files are refused."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a header is text for Python to read: a hostile one can raise anything
        raise DataError(f"{path}: not a whole .npy file of plain numbers ({error})") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: expected one .npy array, got {type(array).__name__}")
    extra = path.stat().st_size - array.nbytes - getattr(array, "offset", 0)
    if extra > 0 and isinstance(array, np.memmap):
        raise DataError(f"{path}: {extra} bytes more than its header {array.shape} asks for; it is damaged")
    return array


def as_images(array: NDArray[Any], where: str) -> Images:
    """Check that an array holds pictures: uint8 (N, H, W, C), or (N, H, W) for grey ones."""
    if array.dtype != np.uint8:
        raise DataError(
            f"{where}: images must be uint8 0..255, got {array.dtype}. "
            "For floats in [0, 1] store (255 * images).round().astype('uint8')"
        )
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        raise DataError(f"{where}: images must be (N, H, W, C) or (N, H, W) and not empty, got {array.shape}")
    if array.shape[3] not in (1, 3):
        hint = " (channels first? use images.transpose(0, 2, 3, 1))" if array.shape[1] in (1, 3) else ""
        raise DataError(f"{where}: images must have 1 or 3 channels last, got {array.shape}{hint}")
    return array


def as_labels(array: NDArray[Any], count: int, where: str) -> Labels:
    """Check that an array holds one class index per picture and return it as int64."""
    if array.dtype.kind not in "iu":
        raise DataError(f"{where}: labels must be whole numbers, got {array.dtype}")
    if array.shape != (count,):
        raise DataError(f"{where}: expected one label for each of {count} images, got shape {array.shape}")
    labels = np.array(array, dtype=np.int64)
    if count and labels.min() < 0:
        raise DataError(f"{where}: labels must be 0 or more, got {labels.min()}")
    if count and labels.max() >= MOST_CLASSES:
        raise DataError(
            f"{where}: labels must be class indices below {MOST_CLASSES:,}, got {labels.max()}. "
            "Fix: number the classes from 0, labels = np.unique(labels, return_inverse=True)[1]"
        )
    return labels


def resized(images: Images, size: int) -> Images:
    """Resize every picture to `size` × `size` (Pillow, bilinear with antialiasing)."""
    from PIL import Image

    count, height, width, channels = images.shape
    if (height, width) == (size, size):
        return images
    if (files := streamed(images)) is not None:
        shape = (size, size, channels)
        return cast("Images", files.then(lambda one, _: resized(one[None], size)[0], f"resized {size}", shape))
    out = np.empty((count, size, size, channels), np.uint8)
    for index in range(count):
        image = images[index] if channels > 1 else images[index, ..., 0]
        picture = Image.fromarray(np.ascontiguousarray(image))
        smooth = picture.resize((size, size), Image.Resampling.BILINEAR)
        out[index] = np.asarray(smooth).reshape(size, size, channels)
    return out
