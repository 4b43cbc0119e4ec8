"""`load`: every set by name, with one interface for clean, corrupted, bundled and private data."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steep.corruptions.parameters import whole_number
from steep.data import corrupted, sources
from steep.data.arrays import Labels, as_images, as_labels, read_npy, resized, sha256
from steep.data.formats import class_names, from_class_folders
from steep.data.imageset import ImageSet
from steep.data.known import DIGITS, KNOWN, VALIDATION_EVERY, data_set
from steep.errors import DataError, InputError, install_extra

NAMES = tuple(KNOWN)
"""What `load` knows; every one also with `-c` at the end."""

_SPLITS = ("train", "val", "test")


def load(
    name: str,
    split: str = "test",
    root: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    mix: bool = False,
    size: int | None = None,
    channels: int | None = None,
    domain: str | None = None,
    corruption: str | None = None,
    severity: int | None = None,
    seed: int = 0,
) -> ImageSet:
    """Load a set by name.

    Args:
        name: cifar10, cifar100, tiny-imagenet, pacs, mnist, mnist-rotated (turned by 90 degrees), digits, folder or
            arrays; with `-c` at the end the same set corrupted.
        split: train or test (tiny-imagenet: test is its validation part; pacs: test is the whole domain, train and val
            are nine tenths and one tenth of it).
        root: where data lives, by default `STEEP_DATA` or the user's cache folder. For folder: the directory with one
            folder per class, or with train, val and test above them (val and test stand in for each other; the classes
            are those of all three together, whether they hold pictures here or not). For arrays: an .npz with images
            and labels, or a directory with images.npy and labels.npy (or test-images.npy and test-labels.npy).
        limit: only the first so many pictures.
        mix: take a set that lies class by class, as folders do, in a random order that is always the same; the first
            pictures, and the batches of a stream, are of one class otherwise. Other sets keep their order.
        size: resize to size × size. Sets with a published corruption table are corrupted first and resized then, all
            others the other way round.
        channels: 3 repeats the one plane of a grey set.
        domain: of pacs: photo, art_painting, cartoon or sketch.
        corruption: which variant of a -c set. Files in the published layout below `root` are used where they are
            there, otherwise the pictures are made on the fly; `origin` says which.
        severity: of the corruption, 1 to 5.
        seed: of its random draws.

    >>> digits = load("digits", size=32, limit=100)
    >>> digits.images.shape, str(digits.images.dtype), digits.labels.shape, digits.classes[:3]
    ((100, 32, 32, 1), 'uint8', (100,), ('0', '1', '2'))
    """
    base = data_set(name).name
    data_set(name).part(split, domain)  # an unknown split or domain is refused before anything is read
    for option, value in (("limit", limit), ("size", size)):
        if value is not None and value < 1:
            raise InputError(f"{option}: expected 1 or more, got {value}")
    place = sources.place(root)
    resize_last = corrupted.table_of(base) is not None
    if name == base:
        if corruption is not None or severity is not None:
            raise InputError(f"{name} is the clean set: for corruption={corruption!r} load {name + '-c'!r}")
        found = _clean(base, split, place, domain, size)
    else:
        corruption, severity = corrupted.check_request(corruption, severity)
        seed = whole_number("seed", seed)
        if split != "test":
            raise InputError(f"{name}: corrupted sets are made of the test split, got split={split!r}")
        whole = None
        if not resize_last:  # made of whatever is there, so the files on disk must say that they were made of it
            whole = _shaped(_clean(base, split, place, domain, size), size, channels)
        # What is drawn for a picture hangs on its place, so mixing comes after corrupting, and needs all of the set.
        made_of = whole.digest if whole else None
        files = corrupted.published(base, corruption, severity, place, seed=seed, limit=limit, clean=made_of)
        if files is not None and mix and limit is not None and _by_class(files.labels):
            files = corrupted.published(base, corruption, severity, place, seed=seed, clean=made_of)
        if files is not None:
            found = files
        else:
            clean = whole or _clean(base, split, place, domain, size)
            mix = mix and _by_class(clean.labels)
            found = corrupted.made(clean if mix else _first(clean, limit), corruption, severity, seed=seed)
    return _shaped(_first(_mixed(found) if mix else found, limit), size, channels)


def _clean(name: str, split: str, root: Path, domain: str | None, size: int | None) -> ImageSet:
    special: Mapping[str, Callable[[], ImageSet]] = {
        "mnist-rotated": lambda: _rotated(split, root),
        "digits": lambda: _digits(split),
        "folder": lambda: _folder(split, root, size),
        "arrays": lambda: _arrays(split, root),
    }
    return special[name]() if name in special else _known(name, split, root, domain)


def _known(name: str, split: str, root: Path, domain: str | None = None) -> ImageSet:
    declared = KNOWN[name]
    stored = sources.obtain(name, declared.part(split, domain), root)
    images, labels, digest = stored.data.images, stored.data.labels, stored.digest
    if declared.domains and split != "test":  # classes lie one after the other, so the val split covers all of them
        validation = np.arange(len(labels)) % VALIDATION_EVERY == VALIDATION_EVERY - 1
        rows = np.flatnonzero(validation if split == "val" else ~validation)
        images, labels = images[rows], labels[rows]
        digest = sha256(images)
    return ImageSet(
        images=images,
        labels=labels,
        classes=declared.classes or stored.data.classes,
        name=name,
        split=split if domain is None else f"{domain}-{split}",
        origin=stored.origin,
        digest=digest,
    )


def _rotated(split: str, root: Path) -> ImageSet:
    upright = _known("mnist", split, root)
    turned = np.ascontiguousarray(np.rot90(upright.images, axes=(1, 2)))  # counter-clockwise
    return replace(upright, images=turned, name="mnist-rotated", digest=sha256(turned))


def _digits(split: str) -> ImageSet:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(f"digits come with scikit-learn. {install_extra('demo')}") from None
    bundle = load_digits()
    pixels = np.rint(bundle.images * (255 / 16)).astype(np.uint8)[..., None]  # 0..16 → 0..255
    order = np.random.RandomState(0).permutation(len(pixels))  # the frozen generator: the same split for ever
    tested = DIGITS.count("test")
    rows = np.sort(order[:tested] if split == "test" else order[tested:])
    images = np.ascontiguousarray(pixels[rows])
    return ImageSet(
        images=images,
        labels=bundle.target[rows].astype(np.int64),
        classes=DIGITS.classes,
        name="digits",
        split=split,
        origin="bundled with scikit-learn",
        digest=sha256(images),
    )


def _folder(split: str, root: Path, size: int | None) -> ImageSet:
    if not root.is_dir():
        raise DataError(f"{root}: not a folder. Give root= the directory with one folder of pictures per class")
    splits = [below for below in _SPLITS if class_names(root / below)]  # a class may be called train: it has no folders
    here = root
    if splits:
        other = {"test": ("test", "val"), "val": ("val", "test")}.get(split, (split,))
        chosen = next((below for below in other if below in splits), None)
        if chosen is None:
            raise DataError(f"{root}: holds {', '.join(splits)} but no {split}. Give split={splits[0]!r}")
        here = root / chosen
    data = from_class_folders(here, size, class_names(*(root / below for below in splits)))
    return ImageSet(
        images=data.images,
        labels=data.labels,
        classes=data.classes,
        name="folder",
        split=split,
        origin=f"folder: {here.name}",
        digest=sha256(data.images),
    )


def _arrays(split: str, root: Path) -> ImageSet:
    if root.suffix == ".npz":
        pixels, numbers = _from_npz(root)
    else:
        stems = (f"{split}-", "")
        pair = [(root / f"{stem}images.npy", root / f"{stem}labels.npy") for stem in stems]
        chosen = next((files for files in pair if all(file.exists() for file in files)), None)
        if chosen is None:
            raise DataError(
                f"{root}: expected an .npz, or a folder with images.npy and labels.npy "
                f"(or {split}-images.npy and {split}-labels.npy)"
            )
        pixels, numbers = read_npy(chosen[0]), read_npy(chosen[1])
    images = as_images(pixels, str(root))
    labels = as_labels(numbers, len(images), str(root))
    return ImageSet(
        images=images,
        labels=labels,
        classes=tuple(map(str, range(int(labels.max()) + 1))),
        name="arrays",
        split=split,
        origin=f"arrays: {root.name}",
        digest=sha256(images),
    )


def _from_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as bundle:
            for pair in (("images", "labels"), ("x", "y"), ("arr_0", "arr_1")):
                if all(key in bundle for key in pair):
                    images, labels = (bundle[key] for key in pair)
                    if isinstance(images, np.ndarray) and isinstance(labels, np.ndarray):
                        return images, labels
                    raise ValueError("a member is no array")
            raise DataError(f"{path}: expected arrays named images and labels, found {sorted(bundle)}")
    except DataError:
        raise
    except Exception as error:  # a hostile header can raise anything
        raise DataError(f"{path}: not a whole .npz of plain numbers ({error})") from error


def _first(data: ImageSet, limit: int | None) -> ImageSet:
    if limit is None or limit >= len(data):
        return data
    images = data.images[:limit]
    return replace(data, images=images, labels=data.labels[:limit], digest=sha256(images))


def _mixed(data: ImageSet) -> ImageSet:
    """Take a set that lies class by class in a random order; leave any other as it is."""
    if not _by_class(data.labels) or len(np.unique(data.labels)) == 1:
        return data
    order = np.random.RandomState(0).permutation(len(data))  # the frozen generator
    images = np.ascontiguousarray(data.images[order])
    origin = f"{data.origin}, shuffled"
    return replace(data, images=images, labels=data.labels[order], origin=origin, digest=sha256(images))


def _by_class(labels: Labels) -> bool:
    """Tell whether every class is one stretch.

    >>> _by_class(np.array([2, 2, 0, 1, 1])), _by_class(np.array([0, 1, 0]))
    (True, False)
    """
    return int(np.count_nonzero(np.diff(labels))) + 1 == len(np.unique(labels))


def _shaped(data: ImageSet, size: int | None, channels: int | None) -> ImageSet:
    """Resize and repeat planes as asked; nothing is copied where nothing changes."""
    images = data.images if size is None else resized(data.images, size)
    if channels is not None and channels != images.shape[3]:
        if channels != 3 or images.shape[3] != 1:
            raise InputError(f"channels: {data.name} has {images.shape[3]}, only 1 → 3 is possible, got {channels}")
        images = np.repeat(images, 3, axis=3)
    return data if images is data.images else replace(data, images=images, digest=sha256(images))
