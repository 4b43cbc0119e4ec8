"""The -C variants: from published files on disk where they are there, otherwise made on the fly."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from steep import corruptions
from steep.corruptions.digital import through_jpeg
from steep.corruptions.parameters import table_for
from steep.data.arrays import Images, ImageSet, as_images, read_npy, sha256
from steep.data.declaration import Decoded
from steep.data.known import KNOWN
from steep.data.picture_files import MANIFEST, class_names, file_images, natural, pictures_in
from steep.data.sources import classes_of
from steep.data.streamed import streamed
from steep.errors import DataError, InputError
from steep.files import file_sha256, known_sha256, read_json

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


def table_of(data: ImageSet) -> str:
    """Name the corruption parameters of a set: its own, or those of the size."""
    return KNOWN[data.name].table or table_for(*data.images.shape[1:3])


def as_jpeg(data: ImageSet) -> bool:
    """Whether corrupted pictures become JPEG files."""
    smallest = KNOWN[data.name].jpeg_from
    return smallest is not None and min(data.images.shape[1:3]) >= smallest


def file_names(data: ImageSet) -> list[str]:
    """Name the JPEG file of each picture, class/name: as its own file is called, or val_0, val_1, …"""
    if (files := streamed(data.images)) is None:
        names = [f"{KNOWN[data.name].splits[data.split]}_{index}.JPEG" for index in range(len(data))]
    else:
        names = [Path(files.names[row]).name for row in files.rows]
        names = [name if name.lower().endswith((".jpg", ".jpeg")) else f"{name}.JPEG" for name in names]
    paths = [f"{data.classes[label]}/{name}" for label, name in zip(data.labels, names, strict=True)]
    path, count = Counter(paths).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path}: expected a name of its own for each picture of a class, got two. Rename one of them")
    return paths


def pieces(images: Images) -> list[slice]:
    """Cut a set into pieces of a bounded number of pictures."""
    rows = max(1, _CHUNK // math.prod(images.shape[1:]))
    return [slice(first, first + rows) for first in range(0, len(images), rows)]


def made(clean: ImageSet, corruption: str, severity: int, *, seed: int) -> ImageSet:
    """Corrupt a clean set on the fly; where it is in files, each picture when it is decoded."""
    table, jpeg = table_of(clean), as_jpeg(clean)

    def change(images: Images, first: int) -> Images:
        corrupted = corruptions.corrupt(images, corruption, severity=severity, seed=seed, first=first, table=table)
        return through_jpeg(corrupted, **JPEG) if jpeg else corrupted

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
    known = KNOWN[name]
    for folder in (*(root / below for below in known.corrupted_folders or (f"{name}-c",)), root):
        variant = Variant(folder, name, corruption, severity)
        if not variant.is_made_of(seed, clean):
            continue
        classes = classes_of(name, root) if known.class_order is None else known.class_order(root)
        if (decoded := variant.read(limit, classes)) is None:
            continue
        writer = "published files"
        if variant.entry:
            frost = f", {variant.entry['frost']} frost" if "frost" in variant.entry else ""
            writer = f"steep {variant.manifest.get('version')}, seed {seed}{frost}"
        return ImageSet(
            images=decoded.images,
            labels=decoded.labels,
            classes=known.classes or decoded.classes,
            name=f"{name}-c",
            split=f"{corruption}-{severity}",
            origin=f"disk: {folder.name}, {writer}",
            digest=sha256(decoded.images),
            left_out=getattr(decoded.images, "unreadable", {}),
        )
    return None


class Variant:
    """One corruption of a set at one severity, as it lies in a folder in either published layout.

    `entry` is what the manifest says of its file, with the file's name as `file`; empty where steep did not write it.
    """

    def __init__(self, folder: Path, name: str, corruption: str, severity: int) -> None:
        self.folder, self.clean, self.corruption, self.severity = folder, KNOWN[name], corruption, severity
        self.manifest = manifest_of(folder)
        entries = ({**entry, "file": file} for file, entry in self.manifest.get("files", {}).items())
        fits = (e for e in entries if e.get("corruption") == corruption and severity in e.get("severities", ()))
        self.entry: dict[str, Any] = next(fits, {})
        # The part a published version was made of, where there is one.
        self.part = self.clean.parts.get(self.clean.splits["test"]) if self.clean.corrupted_folders else None

    def is_made_of(self, seed: int, clean: str | None) -> bool:
        """Whether files may be what is asked for: made by steep of the same pictures, or published by others."""
        if not self.entry:
            return clean is None and bool(self.clean.corrupted_folders)
        table = self.clean.table or self.manifest.get("table") or ""
        expected: dict[str, object] = {"set": self.clean.name, "seed": seed, "table": table}
        if clean is not None:
            expected["digest"] = clean
        elif self.part is not None:
            expected["count"] = self.part.count
            if self.part.images_sha256 is not None:
                expected["digest"] = self.part.images_sha256
        return all(self.manifest.get(key) == value for key, value in expected.items())

    def read(self, limit: int | None, classes: Sequence[str] = ()) -> Decoded | None:
        """Read the first pictures, or None where there are none. `classes`: of the clean set, where they are known."""
        names = tuple(classes) or tuple(self.manifest.get("classes", ()))
        return self._from_arrays(limit, names) or self._from_folders(limit, names)

    def _from_arrays(self, limit: int | None, classes: tuple[str, ...]) -> Decoded | None:
        """Read (5 N, H, W, C) arrays, severity 1 first; a subset of severities where the manifest says so."""
        file, severities = self.folder / f"{self.corruption}.npy", SEVERITIES
        if self.entry.get("file", "").endswith(".npy"):
            file, severities = self.folder / self.entry["file"], tuple(self.entry["severities"])
            if file.exists():
                compare(file, self.entry["sha256"], known_sha256(file))  # five severities share one file
            elif not file.with_name(f"{file.name}.pieces").exists():  # else it is about to get its name
                raise DataError(f"{file}: named in {MANIFEST} but not there. Run the same steep corrupt command again")
        listing = self.folder / "labels.npy"
        if not file.exists():
            return None
        if not listing.exists():
            raise DataError(f"{self.folder}: holds {file.name} but no labels.npy; bring the rest of the published set")
        images, numbers = as_images(read_npy(file), str(file)), read_npy(listing)
        count, odd = divmod(len(images), len(severities))
        if odd or (self.part and count != self.part.count):
            counts = f"{len(severities)} × {self.part.count if self.part else 'N'}"
            raise DataError(f"{file}: expected {counts} pictures, severity {severities[0]} first, got {images.shape}")
        self._check_sides(images, file)
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1 or len(numbers) < count:
            got = f"{numbers.dtype} {numbers.shape}"
            raise DataError(f"{listing}: expected {count} or more whole numbers, got {got}")
        labels = np.array(numbers[:count], np.int64)
        if self.part and self.part.labels_sha256 not in (None, digest := sha256(labels)):
            wrong = f"expected sha256 {self.part.labels_sha256}, found {digest}"
            raise DataError(f"{listing}: not the labels of {self.clean.title}: {wrong}. Bring the published file")
        at = severities.index(self.severity) * count
        return Decoded(images[at : at + count][:limit], labels[:limit], classes)

    def _from_folders(self, limit: int | None, classes: tuple[str, ...]) -> Decoded | None:
        """Read corruption/severity/class/*.JPEG, ordered by picture name (val_0, val_1, …) over all classes."""
        here = self.folder / self.corruption / str(self.severity)
        if not here.is_dir():
            return None
        names, files = class_names(here), folder_files(here)
        if self.clean.table is None:
            files.sort(key=lambda file: file.parent.name)  # class by class, as the clean set is
        if not files:
            raise DataError(f"{here}: expected class folders with pictures, found none")
        if self.entry:
            compare(here, self.entry["sha256"], target_sha256(here))
        if self.part and len(files) != self.part.count:
            counts = f"expected {self.part.count} pictures, found {len(files)}"
            raise DataError(f"{here}: {counts}; bring the rest of the set")
        many = self.clean.class_count
        some = self.clean.class_order is not None and set(names) <= set(classes)  # which one each is, is known anyway
        if not some and ((classes and names != classes) or (many and len(names) != many)):
            strange = sorted(set(names) ^ set(classes), key=lambda name: (name in classes, name))[:3] if classes else []
            raise DataError(
                f"{here}: expected the {len(classes) or many} class folders of the clean set, found {len(names)}"
                + (f" (not in both: {', '.join(strange)})" if strange else "")
                + "; every label behind a missing one would be wrong. Bring the rest of the set"
            )
        images = file_images(files[:limit], here)
        self._check_sides(images, here)
        index = {wnid: label for label, wnid in enumerate(classes or names)}
        labels = np.asarray([index[file.parent.name] for file in files[:limit]], np.int64)
        return Decoded(images, labels, tuple(index))

    def _check_sides(self, images: Images, where: Path) -> None:
        if self.clean.corrupted_folders and images.shape[1:] != self.clean.shape:
            expected = f"expected pictures of shape {self.clean.shape} as {self.clean.title} has"
            raise DataError(f"{where}: {expected}, got {images.shape[1:]}. Move this other set out of the way")


def manifest_of(folder: Path) -> dict[str, Any]:
    """Read what steep wrote about a folder of corrupted sets; it is empty for files published by others."""
    path = folder / MANIFEST
    if not path.exists():
        return {}
    manifest = read_json(path)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise DataError(f"{path}: not a manifest of corrupted sets. Delete the folder and make it again")
    return manifest


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


def compare(place: Path, expected: str, digest: str) -> None:
    """Refuse files whose sha256 is not the expected one."""
    if digest != expected:
        fix = "Delete it and run the same steep corrupt command again"
        raise DataError(f"{place}: expected sha256 {expected}, found {digest}. {fix}")
