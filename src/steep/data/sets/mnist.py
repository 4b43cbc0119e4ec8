"""MNIST (LeCun et al., 1998) in idx files, and the same turned by 90 degrees."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.archives import unpack_gz
from steep.data.arrays import as_labels
from steep.data.declaration import Decoded, Part, declared
from steep.errors import DataError


def _idx(folder: Path, part: str) -> Decoded:
    stem = {"train": "train", "test": "t10k"}[part]
    images = _idx_array(folder, f"{stem}-images", 3)
    labels = _idx_array(folder, f"{stem}-labels", 1)
    return Decoded(images[..., None], as_labels(labels, len(images), str(folder / f"{stem}-labels")))


def _idx_array(folder: Path, stem: str, dims: int) -> NDArray[np.uint8]:
    files = sorted(folder.glob(f"{stem}[-.]idx{dims}-ubyte*"))
    if not files:
        raise DataError(f"{folder}: expected a file {stem}-idx{dims}-ubyte or the same with .gz")
    path = files[0]
    data = unpack_gz(path) if path.suffix == ".gz" else path.read_bytes()
    header = 4 + 4 * dims  # magic number, then one big-endian length per dimension
    if len(data) < header or data[:4] != bytes([0, 0, 8, dims]):
        raise DataError(f"{path}: not an idx file of {dims}-dimensional bytes")
    shape = tuple(int(side) for side in np.frombuffer(data, ">u4", dims, 4))
    if len(data) - header != math.prod(shape):
        raise DataError(f"{path}: its header promises {shape}, {len(data) - header} bytes follow; truncated?")
    return np.frombuffer(data, np.uint8, -1, header).reshape(shape)


MNIST = declared("mnist", {"idx files": _idx})

MNIST_ROTATED = replace(
    MNIST,
    name="mnist-rotated",
    title="MNIST, turned by 90 degrees",
    parts={name: Part(count=part.count) for name, part in MNIST.parts.items()},
    made_of=("mnist", lambda images: np.ascontiguousarray(np.rot90(images, axes=(1, 2)))),  # counter-clockwise
    layouts=(),
    archives=(),
    official=(),
    package=None,
)
