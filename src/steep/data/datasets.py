"""`load`: every set by name, with one interface for clean, corrupted, bundled and private data."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steep.corruptions.parameters import checked, whole_number
from steep.data import corrupted, sources
from steep.data.arrays import ImageSet, Labels, resized, sha256
from steep.data.declaration import VALIDATION_EVERY
from steep.data.known import KNOWN, data_set
from steep.data.streamed import streamed
from steep.data.transform import Transform
from steep.errors import DataError, InputError, SteepWarning

NAMES = tuple(KNOWN)
"""What `load` knows; every one also with `-c` at the end."""

STREAM_ABOVE = 2 << 30  # bytes of pictures that `load` decodes into memory; more stay in their files


def load(
    name: str,
    split: str = "test",
    root: str | os.PathLike[str] | None = None,
    *,
    limit: int | None = None,
    mix: bool = False,
    size: int | None = None,
    crop: float | None = None,
    interpolation: str | None = None,
    channels: int | None = None,
    domain: str | None = None,
    corruption: str | None = None,
    severity: int | None = None,
    seed: int = 0,
    stream: bool | None = None,
) -> ImageSet:
    """Load a set by name.

    Args:
        name: one of `NAMES`; with `-c` at the end the same set corrupted.
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
        crop: of picture files: the short side is resized to size / crop, then the middle is cut out. None: as the set
            says (ImageNet and sets of domains: 0.875), or else the whole picture is squeezed into the square.
        interpolation: of picture files: bilinear, bicubic, ...; all of them smooth where they make a picture smaller.
        channels: 3 repeats the one plane of a grey set.
        domain: of a set with domains, such as photo of pacs.
        corruption: which variant of a -c set. Files in the published layout below `root` are used where they are
            there, otherwise the pictures are made on the fly; `origin` says which.
        severity: of the corruption, 1 to 5.
        seed: of its random draws.
        stream: leave the pictures in their files until their batch is made. None: where they would take more than
            2 GiB. False also leaves out, and names in `left_out`, those that cannot be read; a stream does so on its
            way.

    >>> digits = load("digits", size=32, limit=100)
    >>> digits.images.shape, str(digits.images.dtype), digits.labels.shape, digits.classes[:3]
    ((100, 32, 32, 1), 'uint8', (100,), ('0', '1', '2'))
    """
    declared = data_set(name)
    base = declared.name
    declared.part(split, domain)  # an unknown split or domain is refused before anything is read
    if limit is not None and limit < 1:
        raise InputError(f"limit: expected 1 or more, got {limit}")
    if (crop or interpolation) and declared.transform is None:
        raise InputError(f"crop, interpolation: expected none, as {base} is no set of picture files of any size")
    usual = declared.transform or Transform()
    asked = {"size": size, "crop": crop, "interpolation": interpolation}
    how = replace(usual, **{k: v for k, v in asked.items() if v is not None})  # type: ignore[arg-type]
    folder = sources.place(root)
    if name == base:
        if corruption is not None or severity is not None:
            raise InputError(f"{name} is the clean set: for corruption={corruption!r} load {name + '-c'!r}")
        data = _clean(base, split, folder, domain, how)
    else:
        if corruption is None or severity is None:
            raise InputError("a -c set needs corruption= (such as 'fog') and severity= (1 to 5)")
        corruption, severity = checked(corruption, severity)
        seed = whole_number("seed", seed)
        if split != "test":
            raise InputError(f"{name}: corrupted sets are made of the test split, got split={split!r}")
        clean = digest = None
        if declared.table is None:  # made of whatever is there, so the files on disk must name the same clean pictures
            clean = _shaped(_clean(base, split, folder, domain, how), size, channels)
            digest = clean.digest
            clean = _settled(clean, stream)
        # What is drawn for a picture depends on its place, so mixing comes after corrupting, and needs all of the set.
        files = corrupted.published(base, corruption, severity, folder, seed=seed, limit=limit, clean=digest)
        if files is not None and mix and limit is not None and _by_class(files.labels):
            files = corrupted.published(base, corruption, severity, folder, seed=seed, clean=digest)
        if files is not None:
            data = files
        else:
            clean = clean or _clean(base, split, folder, domain, usual)
            mix = mix and _by_class(clean.labels)
            clean = _settled(clean if mix else _first(clean, limit), stream)
            data = corrupted.made(clean, corruption, severity, seed=seed)
    return _settled(_shaped(_first(_mixed(data) if mix else data, limit), size, channels), stream)


def _clean(name: str, split: str, root: Path, domain: str | None, how: Transform) -> ImageSet:
    declared = KNOWN[name]
    part = declared.part(split, domain)
    if declared.made_of is not None:
        base, change = declared.made_of
        source = _clean(base, split, root, domain, how)
        images = change(source.images)
        return replace(source, images=images, name=name, digest=sha256(images))
    data = sources.obtain(name, part, root) if declared.read is None else declared.read(part, root, how)
    if declared.domains and split != "test":  # classes lie one after the other, so the val split covers all of them
        validation = np.arange(len(data.labels)) % VALIDATION_EVERY == VALIDATION_EVERY - 1
        rows = np.flatnonzero(validation if split == "val" else ~validation)
        data = data._replace(images=data.images[rows], labels=data.labels[rows], digest="")
    return ImageSet(
        images=data.images,
        labels=data.labels,
        classes=declared.classes or data.classes,
        name=name,
        split=split if domain is None else f"{domain}-{split}",
        origin=data.origin,
        digest=data.digest or sha256(data.images),
        subset=data.subset,
        left_out=getattr(data.images, "unreadable", {}),
    )


def _settled(data: ImageSet, stream: bool | None) -> ImageSet:
    """Bring pictures in files into memory where they fit; those that cannot be read are left out."""
    files = streamed(data.images)
    if files is None or stream or (stream is None and math.prod(files.shape) > STREAM_ABOVE):
        return data
    pixels, readable = files.decoded()
    if data.left_out:
        name, why = next(iter(data.left_out.items()))
        text = f"{len(data.left_out)} of {len(data)} pictures cannot be read, such as {name}: {why}"
        if not len(pixels):
            raise DataError(text)
        warnings.warn(f"{data.name}: {text}. They are left out", SteepWarning, stacklevel=3)
    return replace(data, images=pixels, labels=data.labels[readable], digest=sha256(pixels))


def _first(data: ImageSet, limit: int | None) -> ImageSet:
    if limit is None or limit >= len(data):
        return data
    return _chosen(data, slice(limit))


def _mixed(data: ImageSet) -> ImageSet:
    """Take a set that lies class by class in a random order; leave any other as it is."""
    if not _by_class(data.labels) or len(np.unique(data.labels)) == 1:
        return data
    order = np.random.RandomState(0).permutation(len(data))  # the frozen generator
    return replace(_chosen(data, order), origin=f"{data.origin}, shuffled")


def _chosen(data: ImageSet, rows: Any) -> ImageSet:
    images = data.images[rows]
    return replace(data, images=images, labels=data.labels[rows], digest=sha256(images))


def _by_class(labels: Labels) -> bool:
    """Tell whether every class is one stretch."""
    return int(np.count_nonzero(np.diff(labels))) + 1 == len(np.unique(labels))


def _shaped(data: ImageSet, size: int | None, channels: int | None) -> ImageSet:
    """Resize and repeat planes as asked; nothing is copied where nothing changes."""
    images = data.images if size is None else resized(data.images, size)
    if channels is not None and channels != images.shape[3]:
        if channels != 3 or images.shape[3] != 1:
            raise InputError(f"channels: {data.name} has {images.shape[3]}, only 1 → 3 is possible, got {channels}")
        images = np.repeat(images, 3, axis=3)
    return data if images is data.images else replace(data, images=images, digest=sha256(images))
