"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in the layouts they are published and packaged in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steep.data.arrays import Images, Labels, as_labels
from steep.data.declaration import Decoded, declared
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
        if not isinstance(batch.get("data"), np.ndarray) or key not in batch:
            raise DataError(f"{file}: expected 'data' and {key!r}, found {sorted(batch)}")
        images.append(_planes(batch["data"], str(file)))
        labels.append(_listed_labels(batch[key], len(images[-1]), file))
    return Decoded(np.concatenate(images), np.concatenate(labels))


def _cifar_binary(files: list[Path], labels_per_row: int) -> Decoded:
    parts, length = [], 3072 + labels_per_row
    for file in files:
        values = np.fromfile(file, np.uint8)
        if not len(values) or len(values) % length:
            raise DataError(f"{file}: {len(values)} bytes are not whole rows of {length}; truncated?")
        parts.append(values.reshape(-1, length))
    rows = np.concatenate(parts)  # the fine label stands last
    return Decoded(_planes(rows[:, labels_per_row:], "rows"), rows[:, labels_per_row - 1].astype(np.int64))


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
    return Decoded(whole, _listed_labels(read_json(file), len(whole), file))


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
    return Decoded(whole, _listed_labels(content.get(part) if isinstance(content, dict) else None, len(whole), file))


def _listed_labels(labels: object, count: int, where: Path) -> Labels:
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{where}: expected labels as a list of whole numbers")
    return as_labels(np.asarray(labels, np.int64), count, str(where))


CIFAR10 = declared(
    "cifar10",
    {
        "python batches": lambda folder, part: _cifar_pickles(_batches(folder, part), "labels"),
        "binary batches": lambda folder, part: _cifar_binary(_batches(folder, part, ".bin"), 1),
        "PNG sheets": _row_sheets,
        "WebP sheets": _grid_sheets,
    },
)

CIFAR100 = declared(
    "cifar100",
    {
        "python batches": lambda folder, part: _cifar_pickles([folder / part], "fine_labels"),
        "binary batches": lambda folder, part: _cifar_binary([folder / f"{part}.bin"], 2),
        "WebP sheets": _grid_sheets,
    },
)
