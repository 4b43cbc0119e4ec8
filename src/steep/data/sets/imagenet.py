"""ImageNet (Russakovsky et al., 2015) and the sets made for its 1,000 classes, as their authors publish them.

The classes are the WordNet ids, sorted. steep brings no list of them: it is read from `synsets.txt` or one of the lists
that come with ImageNet, from a folder that holds all 1,000, or from timm where it is installed.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from steep.corruptions.parameters import LARGE
from steep.data.arrays import Subset
from steep.data.declaration import DataSet, Decoded, facts_of
from steep.data.picture_files import class_names, file_images, from_list, pictures_in
from steep.data.transform import Transform
from steep.errors import DataError, InputError

_COUNT = 1_000
_WNID = re.compile(r"n\d{8}")
_FOLDERS = ("imagenet", "ImageNet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "ImageNet-C", "imagenet-c", ".")
_DEVKIT = ("ILSVRC2012_devkit_t12/data", "devkit/data", "data", ".")
_SYNSETS = ("synsets.txt", "LOC_synset_mapping.txt", "synset_words.txt", "imagenet_synsets.txt", "map_clsloc.txt")


def synsets(root: Path) -> tuple[str, ...]:
    """Give the WordNet ids of the 1,000 classes in their order; none where nothing here names them."""
    timm = importlib.util.find_spec("timm")
    places = [*_places(root), root.parent]
    listed = [here / below / name for here in places for below in _DEVKIT for name in _SYNSETS]
    if timm is not None and timm.origin:
        listed.append(Path(timm.origin).parent / "data" / "_info" / "imagenet_synsets.txt")
    for file in listed:
        if file.is_file():
            ids = set(_WNID.findall(file.read_text(encoding="utf-8", errors="replace")))
            if len(ids) != _COUNT:
                raise DataError(f"{file}: expected the WordNet ids of {_COUNT:,} classes, got {len(ids):,}")
            return tuple(sorted(ids))
    folders = [here / below for here in places for below in ("train", "val", "sketch", ".")]
    folders += [folder for here in places for folder in sorted(here.glob("*/[1-5]"))]  # of ImageNet-C
    for folder in folders:
        ids = {name for name in class_names(folder) if _WNID.fullmatch(name)}
        if len(ids) == _COUNT:
            return tuple(sorted(ids))
    return ()


def _places(root: Path) -> Iterator[Path]:
    return filter(Path.is_dir, (root / folder for folder in _FOLDERS))


def _labels(words: list[str], root: Path, where: Path) -> tuple[list[int], tuple[str, ...]]:
    """Turn WordNet ids, or numbers from 0 on, into labels; with them come the names of all classes."""
    classes = synsets(root)
    if not classes and any(_WNID.fullmatch(word) for word in words):
        raise DataError(
            f"{where}: which of the {_COUNT:,} classes of ImageNet is {words[0]}? Put their WordNet ids, one a line, "
            f"into {root / 'synsets.txt'}, or install timm, which has them"
        )
    classes = classes or tuple(map(str, range(_COUNT)))
    index = {**{str(label): label for label in range(_COUNT)}, **{wnid: i for i, wnid in enumerate(classes)}}
    if strange := sorted({word for word in words if word not in index}):
        raise DataError(f"{where}: expected classes of ImageNet, WordNet ids or 0 to {_COUNT - 1}, got {strange[0]!r}")
    return [index[word] for word in words], classes


def _from_folders(here: Path, root: Path, how: Transform, *, some: bool = False) -> Decoded:
    """Read a folder per class, named by WordNet ids or numbers. With `some`, only the classes that are there count."""
    files = {name: paths for name in class_names(here) if (paths := pictures_in(here / name))}
    labels, classes = _labels(list(files), root, here)
    order = sorted(zip(labels, files.values(), strict=True))
    outputs = tuple(label for label, _ in order)
    numbers = np.repeat(outputs, [len(paths) for _, paths in order]).astype(np.int64)
    subset = Subset(outputs, _COUNT) if some else None
    if subset is not None:
        numbers = np.searchsorted(outputs, numbers)
        classes = tuple(classes[label] for label in outputs)
    pictures = file_images([path for _, paths in order for path in paths], here, how)
    return Decoded(pictures, numbers, classes, f"pictures: {here.name}", subset=subset)


def _read_relative(part: str, root: Path, how: Transform, *, folders: tuple[str, ...], some: bool) -> Decoded:
    if part == "train":  # these sets are only for testing: what such models were trained on
        return _read_imagenet(part, root, how)
    here = next((root / folder for folder in (*folders, ".") if class_names(root / folder)), root)
    return _from_folders(here, root, how, some=some)


def _read_imagenet(part: str, root: Path, how: Transform) -> Decoded:
    """Read a list of `path label` (root may be one), a folder per class, or the flat folder with the devkit beside."""
    if root.is_file():
        return _from_lines(root, root.parent, how)
    for here in _places(root):
        for file in filter(Path.is_file, (here / f"{part}.txt", here / "dataset.txt")):
            return _from_lines(file, here / part, how)
        for folder in filter(Path.is_dir, (here / part, here)):
            if any(map(_WNID.fullmatch, class_names(folder))):
                return _from_folders(folder, root, how)
            if part == "val" and pictures_in(folder):
                return _from_devkit(folder, root, how)
    raise DataError(
        f"{root}: expected ImageNet's {part} part: {part}/ with a folder for each class, {part}.txt with a path and a "
        f"label a line, or val/ with ILSVRC2012_validation_ground_truth.txt of the devkit"
    )


def _from_lines(file: Path, folder: Path, how: Transform) -> Decoded:
    paths, words = from_list(file, file.parent)
    if not paths[0].exists():  # some lists name the files alone
        paths, words = from_list(file, folder)
    labels, classes = _labels(words, file.parent, file)
    return Decoded(file_images(paths, file.parent, how), np.asarray(labels, np.int64), classes, f"list: {file.name}")


def _from_devkit(flat: Path, root: Path, how: Transform) -> Decoded:
    """The pictures in the order of their names, and a line for each with a number that the devkit's meta explains."""
    paths = pictures_in(flat)
    devkit = [here / below for here in _places(root) for below in _DEVKIT]
    truth = next(filter(Path.is_file, (here / "ILSVRC2012_validation_ground_truth.txt" for here in devkit)), None)
    if truth is None:
        raise DataError(f"{flat}: {len(paths):,} pictures without labels. Put the devkit's folder beside them")
    numbers = truth.read_text().split()
    if len(numbers) != len(paths):
        raise DataError(f"{truth}: expected a label for each of {len(paths):,} pictures, got {len(numbers):,}")
    meaning = _meta(truth.parent)
    if strange := set(numbers) - set(meaning):
        raise DataError(f"{truth}: expected numbers that the devkit's meta explains, got {sorted(strange)[0]!r}")
    classes = tuple(sorted(meaning.values()))
    labels = np.searchsorted(classes, [meaning[number] for number in numbers])
    return Decoded(file_images(paths, flat, how), labels, classes, f"pictures: {flat.name}, {truth.name}")


def _meta(devkit: Path) -> dict[str, str]:
    """Say which WordNet id each number of the devkit is."""
    if (plain := devkit / "map_clsloc.txt").is_file():
        meaning = {row[1]: row[0] for line in plain.read_text().splitlines() if len(row := line.split()) > 1}
    elif (devkit / "meta.mat").is_file():
        try:
            from scipy.io import loadmat
        except ImportError:
            fix = "Install scipy, which reads it, or put map_clsloc.txt there"
            raise InputError(f"{devkit / 'meta.mat'}: {fix}") from None
        rows = loadmat(devkit / "meta.mat", squeeze_me=True)["synsets"]
        meaning = {
            str(int(row["ILSVRC2012_ID"])): str(row["WNID"]) for row in rows if int(row["ILSVRC2012_ID"]) <= _COUNT
        }
    else:
        raise DataError(f"{devkit}: expected meta.mat or map_clsloc.txt beside the labels, found neither")
    if len(meaning) != _COUNT or not all(map(_WNID.fullmatch, meaning.values())):
        raise DataError(f"{devkit}: expected {_COUNT:,} numbers with their WordNet ids, found {len(meaning):,}")
    return meaning


IMAGENET = DataSet(
    name="imagenet",
    title="ImageNet",
    shape=(224, 224, 3),
    class_count=_COUNT,
    splits={"train": "train", "val": "val", "test": "val"},  # the real test labels were never published
    table="imagenet",
    corrupted_folders=("ImageNet-C", "imagenet-c"),
    jpeg_from=0,
    read=_read_imagenet,
    transform=Transform(size=224, crop=0.875),
    class_order=synsets,
)


RELATIVES = tuple(
    DataSet(
        name=name,
        shape=(224, 224, 3),
        read=partial(_read_relative, folders=facts.pop("folders"), some=facts.pop("some", False)),
        transform=IMAGENET.transform,
        jpeg_from=LARGE,
        **facts,
    )
    for name, facts in facts_of("imagenet").items()
)
