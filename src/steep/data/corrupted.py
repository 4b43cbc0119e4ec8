"""The -C variants: from published files on disk where they are there, otherwise made on the fly."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from steep import corruptions
from steep.corruptions.digital import through_jpeg
from steep.corruptions.parameters import table_for
from steep.data.arrays import Images, ImageSet, as_images, read_npy, sha256
from steep.data.declaration import Decoded, Part
from steep.data.known import KNOWN
from steep.data.picture_files import MANIFEST, class_names, file_images, natural, pictures_in
from steep.data.sources import classes_of
from steep.data.streamed import streamed
from steep.errors import DataError, InputError
from steep.files import file_sha256, read_json

SEVERITIES = (1, 2, 3, 4, 5)
JPEG: dict[str, Any] = {"quality": 85, "optimize": True}  # Tiny-ImageNet-C and ImageNet-C store their pictures so

_CHUNK = 1 << 22  # bytes of pictures corrupted at once: memory follows this, not the set


def check_shape(data: ImageSet) -> None:
    """Refuse a resized copy of a set with a published table: its variants are corrupted first and resized then."""
    shape = KNOWN[data.name].shape
    if KNOWN[data.name].table and shape and data.images.shape[1:] != shape:
        raise InputError(
            f"size: {data.name} is corrupted at its own {shape[0]} × {shape[1]} pixels, got "
            f"{data.images.shape[1:]}. Leave size out here and give it to load({data.name + '-c'!r}, …, size=)"
        )


def table_of(name: str, shape: Sequence[int]) -> str:
    """Name the corruption parameters of a set of (N, H, W, C): its own, or those of the size."""
    return KNOWN[name].table or table_for(*shape[1:3])


def as_jpeg(name: str, shape: Sequence[int]) -> bool:
    """Whether corrupted pictures become JPEG files: where the set says so, and as ImageNet-C's, large ones of files."""
    declared = KNOWN[name]
    return declared.corrupted_as_jpeg or (declared.transform is not None and table_of(name, shape) == "imagenet")


def file_names(data: ImageSet) -> list[str]:
    """Name the JPEG file of each picture, class/name: as its own file is called, or val_0, val_1, …"""
    if (files := streamed(data.images)) is None:
        names = [f"{KNOWN[data.name].splits[data.split]}_{index}.JPEG" for index in range(len(data))]
    else:
        names = [Path(files.names[row]).name for row in files.rows]
        names = [name if name.lower().endswith((".jpg", ".jpeg")) else f"{name}.JPEG" for name in names]
    paths = [f"{data.classes[label]}/{name}" for label, name in zip(data.labels, names, strict=True)]
    if len(set(paths)) < len(paths):
        twice = next(path for path, count in Counter(paths).items() if count > 1)
        raise DataError(f"{twice}: expected a name of its own for each picture of a class, got two. Rename one of them")
    return paths


def check_device(device: str) -> None:
    """Refuse a device that cannot be used here, before anything is written."""
    try:
        torch.zeros(1, device=device).cpu()
    except Exception as error:  # every backend refuses in its own way
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"device: {device!r} cannot be used here ({why}). Use cpu or one that is there") from error


def pieces(images: Images) -> list[slice]:
    """Cut a set into pieces of a bounded number of pictures."""
    rows = max(1, _CHUNK // math.prod(images.shape[1:]))
    return [slice(first, first + rows) for first in range(0, len(images), rows)]


def corrupted_piece(
    images: Images, piece: slice, corruption: str, severity: int, *, seed: int, table: str | None, device: str = "cpu"
) -> Images:
    """Corrupt one piece of a set."""
    clean: Any = np.array(images[piece])
    if device != "cpu":
        clean = torch.from_numpy(clean).to(device)
    done = corruptions.corrupt(clean, corruption, severity=severity, seed=seed, first=piece.start, table=table)
    return np.asarray(done if device == "cpu" else done.cpu())


def made(clean: ImageSet, corruption: str, severity: int, *, seed: int) -> ImageSet:
    """Corrupt a clean set on the fly; where it is in files, each picture when it is decoded."""
    table, jpeg = table_of(clean.name, clean.images.shape), as_jpeg(clean.name, clean.images.shape)

    def change(images: Images, first: int) -> Images:
        done = corruptions.corrupt(images, corruption, severity=severity, seed=seed, first=first, table=table)
        return through_jpeg(done, **JPEG) if jpeg else done

    if (files := streamed(clean.images)) is not None:
        what = f"{corruption} {severity} {seed} {table}"
        out = cast("Images", files.then(lambda pixels, place: change(pixels[None], place)[0], what, files.one))
    else:
        out = np.empty(clean.images.shape, np.uint8)
        for piece in pieces(clean.images):
            out[piece] = change(np.array(clean.images[piece]), piece.start)
    frost = f", {corruptions.frost_source()} frost" if corruption == "frost" else ""
    numbers = "" if KNOWN[clean.name].table else f", {table} table"
    return replace(
        clean,
        images=out,
        name=f"{clean.name}-c",
        split=f"{corruption}-{severity}",
        origin=f"made: {corruption} {severity}, seed {seed}{numbers}{frost}, from {clean.origin}",
        digest=sha256(out),
    )


def published(
    name: str,
    corruption: str,
    severity: int,
    root: Path,
    *,
    seed: int,
    limit: int | None = None,
    clean: str | None = None,
) -> ImageSet | None:
    """Read a -C set from files in the published layout below `root`, or return None where there are none.

    A folder that steep wrote says in its manifest which set, seed and table made it; it is passed over when others are
    asked for. `clean` is the digest of the clean pictures, for sets that are not the same everywhere: only files that
    say they were made of them will do. A file that the manifest does not list was published by somebody else.
    """
    for folder in (*(root / below for below in KNOWN[name].corrupted_folders or (f"{name}-c",)), root):
        manifest = manifest_of(folder)
        entry = entry_of(manifest, corruption, severity)
        if not _usable(name, manifest, entry, seed, clean):
            continue
        order = KNOWN[name].class_order
        classes = classes_of(name, root) if order is None else order(root)
        decoded = variant(folder, name, corruption, severity, limit, manifest, classes)
        if decoded is None:
            continue
        writer = "published files"
        if manifest is not None and entry is not None:
            frost = f", {entry['frost']} frost" if "frost" in entry else ""
            writer = f"steep {manifest.get('version')}, seed {seed}{frost}"
        return ImageSet(
            images=decoded.images,
            labels=decoded.labels,
            classes=KNOWN[name].classes or decoded.classes,
            name=f"{name}-c",
            split=f"{corruption}-{severity}",
            origin=f"disk: {folder.name}, {writer}",
            digest=sha256(decoded.images),
            left_out=getattr(decoded.images, "unreadable", {}),
        )
    return None


def _usable(
    name: str, manifest: dict[str, Any] | None, entry: dict[str, Any] | None, seed: int, clean: str | None
) -> bool:
    """Whether files may be what is asked for: made by steep of the same pictures, or published by others."""
    if manifest is None or entry is None:
        return clean is None and bool(KNOWN[name].corrupted_folders)
    expected: dict[str, object] = {"set": name, "seed": seed, "table": KNOWN[name].table or manifest.get("table") or ""}
    part = _test_part(name)
    if clean is not None:
        expected["digest"] = clean
    elif part is not None:
        expected["count"] = part.count
        if part.images_sha256 is not None:
            expected["digest"] = part.images_sha256
    return all(manifest.get(key) == value for key, value in expected.items())


def _test_part(name: str) -> Part | None:
    """The part a published corrupted version was made of; None where there is no such version."""
    known = KNOWN[name]
    return known.parts.get(known.splits["test"]) if known.corrupted_folders else None


def entry_of(manifest: dict[str, Any] | None, corruption: str, severity: int) -> dict[str, Any] | None:
    """Return what a manifest says about the file of one corruption and severity, with its name as `file`."""
    for file, entry in (manifest or {}).get("files", {}).items():
        if entry.get("corruption") == corruption and severity in entry.get("severities", ()):
            return {**entry, "file": file}
    return None


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Read what steep wrote about a folder of corrupted sets; None for files published by others."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise DataError(f"{path}: not a manifest of corrupted sets. Delete the folder and make it again")
    return manifest


def variant(
    folder: Path,
    name: str,
    corruption: str,
    severity: int,
    limit: int | None,
    manifest: dict[str, Any] | None,
    classes: Sequence[str] = (),
) -> Decoded | None:
    """Read one corruption at one severity from a folder in either published layout; None where it is not there.

    `classes` are those of the clean set, where they are known.
    """
    entry = entry_of(manifest, corruption, severity)
    known = tuple(classes) or tuple((manifest or {}).get("classes", ()))
    asked = (folder, name, corruption, severity, limit, entry, known)
    return _from_arrays(*asked) or _from_folders(*asked)


def _from_arrays(
    folder: Path,
    name: str,
    corruption: str,
    severity: int,
    limit: int | None,
    entry: dict[str, Any] | None,
    classes: tuple[str, ...],
) -> Decoded | None:
    """Read (5 N, H, W, C) arrays, severity 1 first; a subset of severities where the manifest says so."""
    file, severities = folder / f"{corruption}.npy", SEVERITIES
    if entry is not None and entry["file"].endswith(".npy"):
        file, severities = folder / entry["file"], tuple(entry["severities"])
        if file.exists():
            now = file.stat()
            compare(file, entry["sha256"], _file_digest(file, now.st_size, now.st_mtime_ns))
        elif not file.with_name(f"{file.name}.pieces").exists():  # else it is about to get its name
            raise DataError(f"{file}: named in {MANIFEST} but not there. Run the same steep corrupt command again")
    if not file.exists():
        return None
    if not (folder / "labels.npy").exists():
        raise DataError(f"{folder}: holds {file.name} but no labels.npy; bring the rest of the published set")
    images = as_images(read_npy(file), str(file))
    numbers = read_npy(folder / "labels.npy")
    count, odd = divmod(len(images), len(severities))
    expected = _test_part(name)
    if odd or (expected and count != expected.count):
        count_text = f"{len(severities)} × {expected.count if expected else 'N'}"
        raise DataError(f"{file}: expected {count_text} pictures, severity {severities[0]} first, got {images.shape}")
    _check_sides(images, name, str(file))
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or len(numbers) < count:
        raise DataError(
            f"{folder / 'labels.npy'}: expected {count} or more whole numbers, got {numbers.dtype} {numbers.shape}"
        )
    labels = np.array(numbers[:count], np.int64)
    if expected and expected.labels_sha256 and sha256(labels) != expected.labels_sha256:
        raise DataError(
            f"{folder / 'labels.npy'}: not the labels of {KNOWN[name].title}: expected sha256 "
            f"{expected.labels_sha256}, found {sha256(labels)}. Bring the published file"
        )
    at = severities.index(severity) * count
    return Decoded(images[at : at + count][:limit], labels[:limit], classes)


def _from_folders(
    folder: Path,
    name: str,
    corruption: str,
    severity: int,
    limit: int | None,
    entry: dict[str, Any] | None,
    classes: tuple[str, ...],
) -> Decoded | None:
    """Read corruption/severity/class/*.JPEG, ordered by picture name (val_0, val_1, …) over all classes."""
    here = folder / corruption / str(severity)
    if not here.is_dir():
        return None
    names, files = class_names(here), folder_files(here)
    if KNOWN[name].table is None:
        files.sort(key=lambda file: file.parent.name)  # class by class, as the clean set is
    if not files:
        raise DataError(f"{here}: expected class folders with pictures, found none")
    if entry is not None:
        compare(here, entry["sha256"], target_sha256(here))
    part, many = _test_part(name), KNOWN[name].class_count
    if part and len(files) != part.count:
        raise DataError(f"{here}: expected {part.count} pictures, found {len(files)}; bring the rest of the set")
    some = KNOWN[name].class_order is not None and set(names) <= set(classes)  # which one each is, is known anyway
    if not some and ((classes and names != classes) or (many and len(names) != many)):
        strange = sorted(set(names) ^ set(classes), key=lambda name: (name in classes, name))[:3] if classes else []
        raise DataError(
            f"{here}: expected the {len(classes) or many} class folders of the clean set, found {len(names)}"
            + (f" (not in both: {', '.join(strange)})" if strange else "")
            + "; every label behind a missing one would be wrong. Bring the rest of the set"
        )
    images = file_images(files[:limit], here)
    _check_sides(images, name, str(here))
    index = {wnid: label for label, wnid in enumerate(classes or names)}
    labels = np.asarray([index[file.parent.name] for file in files[:limit]], np.int64)
    return Decoded(images, labels, tuple(index))


def folder_files(folder: Path) -> list[Path]:
    """List the pictures of all class folders by their names: val_0, val_1, …"""
    files = [file for name in class_names(folder) for file in pictures_in(folder / name)]
    return sorted(files, key=natural)  # of equal names the first class comes first


def target_sha256(target: Path) -> str:
    """Hash a file; of a folder every picture with its class, as that is its label, and its name."""
    if not target.is_dir():
        return file_sha256(target)
    digest = hashlib.sha256()
    for file in folder_files(target):
        digest.update(f"{file.parent.name}/{file.name}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _check_sides(images: Images, name: str, where: str) -> None:
    if KNOWN[name].corrupted_folders and images.shape[1:] != KNOWN[name].shape:
        raise DataError(
            f"{where}: expected pictures of shape {KNOWN[name].shape} as {KNOWN[name].title} has, got "
            f"{images.shape[1:]}. It is another set: move it out of the way"
        )


def compare(place: Path, expected: str, digest: str) -> None:
    """Refuse files whose sha256 is not the expected one."""
    if digest != expected:
        raise DataError(
            f"{place}: expected sha256 {expected}, found {digest}. "
            "Delete it and run the same steep corrupt command again"
        )


@functools.lru_cache(maxsize=256)
def _file_digest(file: Path, size: int, changed: int) -> str:
    """Hash a file once per process and state: five severities share one file."""
    return file_sha256(file)
