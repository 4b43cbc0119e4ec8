"""The -C variants: from published files on disk where they are there, otherwise made on the fly."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from steep import corruptions
from steep.data.arrays import Images, Labels, as_images, file_sha256, read_npy, sha256
from steep.data.formats import PICTURES, natural, pictures
from steep.data.imageset import ImageSet
from steep.data.known import KNOWN
from steep.errors import DataError, InputError, unknown
from steep.files import read_json

SEVERITIES = (1, 2, 3, 4, 5)
MANIFEST = "steep-corruptions.json"
JPEG_QUALITY = 85  # Tiny-ImageNet-C stores its pictures so

_FOLDERS = {
    "cifar10": ("CIFAR-10-C", "cifar10-c", "cifar-10-c"),
    "cifar100": ("CIFAR-100-C", "cifar100-c", "cifar-100-c"),
    "tiny-imagenet": ("Tiny-ImageNet-C", "tiny-imagenet-c", "TinyImageNet-C"),
}
_CHUNK = 1 << 22  # bytes of pictures corrupted at once: memory follows this, not the set


def check_request(corruption: str | None, severity: int | None) -> tuple[str, int]:
    """Check a corruption name and a severity, with the near match in the error."""
    if corruption is None or severity is None:
        raise InputError("a -c set needs corruption= (such as 'fog') and severity= (1 to 5)")
    if corruption not in corruptions.CORRUPTIONS:
        raise unknown("corruption", corruption, corruptions.CORRUPTIONS)
    if severity not in SEVERITIES:
        raise InputError(f"severity: expected 1, 2, 3, 4 or 5, got {severity!r}")
    return corruption, int(severity)


def table_of(name: str, images: Images | None = None) -> str | None:
    """Return the corruption table published for a set, or None where the scaled one has to do.

    >>> table_of("cifar10"), table_of("digits"), table_of("cifar10", np.zeros((1, 48, 48, 3), np.uint8))
    ('cifar', None, None)
    """
    spec = KNOWN.get(name)
    return spec.table if spec and (images is None or images.shape[1:] == spec.shape) else None


def has_jpeg_pass(name: str) -> bool:
    """Return whether the published variant of a set carries one more JPEG pass."""
    return name == "tiny-imagenet"


def encoded(image: Images) -> bytes:
    """Encode one picture as Tiny-ImageNet-C does: JPEG quality 85, optimised."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image.squeeze()).save(buffer, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return buffer.getvalue()


def chunks(
    images: Images, corruption: str, severity: int, *, seed: int, table: str | None, start: int = 0, device: str = "cpu"
) -> Iterator[Images]:
    """Yield corrupted pictures from index `start` on, a bounded number at a time."""
    rows = max(1, _CHUNK // max(1, images[0].nbytes))
    for first in range(start, len(images), rows):
        piece: Any = np.array(images[first : first + rows])
        if device == "cpu":
            yield corruptions.corrupt(piece, corruption, severity=severity, seed=seed, first=first, table=table)
        else:
            there: Any = torch.from_numpy(piece).to(device)
            done: Any = corruptions.corrupt(there, corruption, severity=severity, seed=seed, first=first, table=table)
            yield done.cpu().numpy()


def made(clean: ImageSet, corruption: str, severity: int, *, seed: int) -> ImageSet:
    """Corrupt a clean set on the fly."""
    out = np.empty(clean.images.shape, np.uint8)
    first = 0
    for piece in chunks(clean.images, corruption, severity, seed=seed, table=table_of(clean.name, clean.images)):
        out[first : first + len(piece)] = _through_jpeg(piece) if has_jpeg_pass(clean.name) else piece
        first += len(piece)
    frost = f", {corruptions.frost_source()} frost" if corruption == "frost" else ""
    return ImageSet(
        images=out,
        labels=clean.labels,
        classes=clean.classes,
        name=f"{clean.name}-c",
        split=f"{corruption}-{severity}",
        origin=f"made: {corruption} {severity}, seed {seed}{frost}, from {clean.origin}",
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

    A folder that steep wrote says in its manifest which set and seed made it; it is passed over when others are asked
    for. `clean` is the digest of the clean pictures, for sets that are not the same everywhere: only files that say
    they were made of them will do.
    """
    for folder in (*(root / below for below in _FOLDERS.get(name, (f"{name}-c",))), root):
        manifest = manifest_of(folder)
        if manifest is None and (clean is not None or name not in _FOLDERS):
            continue
        if manifest is not None and (
            manifest.get("seed") != seed
            or manifest.get("set") != name
            or (clean is not None and manifest.get("digest") != clean)
        ):
            continue
        found = variant(folder, name, corruption, severity, limit, manifest)
        if found is not None:
            images, labels, classes = found
            written = f"steep {manifest.get('version')}, seed {seed}" if manifest else "published files"
            return ImageSet(
                images=images,
                labels=labels,
                classes=(KNOWN[name].classes if name in KNOWN else ()) or classes,
                name=f"{name}-c",
                split=f"{corruption}-{severity}",
                origin=f"disk: {folder.name}, {written}",
                digest=sha256(images),
            )
    return None


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Read what steep wrote about a folder of corrupted sets; None for files published by others."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise DataError(f"{path}: not a manifest of corrupted sets. Delete the folder and make it again")
    return found


Variant: TypeAlias = tuple[Images, Labels, tuple[str, ...]]


def variant(
    folder: Path, name: str, corruption: str, severity: int, limit: int | None, manifest: dict[str, Any] | None
) -> Variant | None:
    """Read one corruption at one severity from a folder in either published layout; None where it is not there."""
    found = _from_arrays(folder, name, corruption, severity, manifest)
    if found is not None:
        images, labels, _ = found
        return images[:limit], labels[:limit], tuple((manifest or {}).get("classes", ()))
    return _from_folders(folder, corruption, severity, limit)


def _from_arrays(
    folder: Path, name: str, corruption: str, severity: int, manifest: dict[str, Any] | None
) -> Variant | None:
    """Read (5 N, H, W, C) arrays, severity 1 first; a subset of severities where the manifest says so."""
    file, severities = folder / f"{corruption}.npy", SEVERITIES
    for entry, said in (manifest or {}).get("files", {}).items():
        if said.get("corruption") == corruption and severity in said.get("severities", ()) and entry.endswith(".npy"):
            file, severities = folder / entry, tuple(said["severities"])
            _verify(file, said["sha256"])
            break
    if not file.exists():
        return None
    if not (folder / "labels.npy").exists():
        raise DataError(f"{folder}: holds {file.name} but no labels.npy; bring the rest of the published set")
    images = as_images(read_npy(file), str(file))
    every = read_npy(folder / "labels.npy")
    count, odd = divmod(len(images), len(severities))
    expected = KNOWN[name].parts["test"] if name in KNOWN and "test" in KNOWN[name].parts else None
    if odd or (expected and count != expected.count):
        must = f"{len(severities)} × {expected.count if expected else 'N'}"
        raise DataError(f"{file}: expected {must} pictures, severity {severities[0]} first, got {images.shape}")
    if every.dtype.kind not in "iu" or every.ndim != 1 or len(every) < count:
        raise DataError(
            f"{folder / 'labels.npy'}: expected {count} or more whole numbers, got {every.dtype} {every.shape}"
        )
    labels = np.array(every[:count], np.int64)
    if expected and expected.labels_sha256 and sha256(labels) != expected.labels_sha256:
        raise DataError(
            f"{folder / 'labels.npy'}: not the labels of {KNOWN[name].title}: expected sha256 "
            f"{expected.labels_sha256}, found {sha256(labels)}. Bring the published file"
        )
    at = severities.index(severity) * count
    return images[at : at + count], labels, ()


def _from_folders(folder: Path, corruption: str, severity: int, limit: int | None) -> Variant | None:
    """Read corruption/severity/class/*.JPEG, ordered by picture name (val_0, val_1, …) over all classes."""
    here = folder / corruption / str(severity)
    if not here.is_dir():
        return None
    classes = tuple(sorted(entry.name for entry in here.iterdir() if entry.is_dir()))
    index = {wnid: label for label, wnid in enumerate(classes)}
    files = [file for wnid in classes for file in (here / wnid).iterdir() if file.suffix.lower() in PICTURES]
    files = sorted(files, key=lambda file: (natural(file), file.parent.name))[:limit]
    if not files:
        raise DataError(f"{here}: expected class folders with pictures, found none")
    return pictures(files), np.asarray([index[file.parent.name] for file in files], np.int64), classes


def _verify(file: Path, expected: str) -> None:
    if not file.exists():
        raise DataError(f"{file}: named in {MANIFEST} but not there. Run the same steep corrupt command again")
    now = file.stat()
    found = _file_digest(file, now.st_size, now.st_mtime_ns)
    if found != expected:
        raise DataError(
            f"{file}: expected sha256 {expected}, found {found}. Delete it and run the same steep corrupt command again"
        )


@functools.lru_cache(maxsize=256)
def _file_digest(file: Path, size: int, changed: int) -> str:
    """Hash a file once per process and state: five severities share one file."""
    return file_sha256(file)


def _through_jpeg(images: Images) -> Images:
    from PIL import Image

    out = np.empty_like(images)
    for index, image in enumerate(images):
        with Image.open(io.BytesIO(encoded(image))) as back:
            out[index] = np.asarray(back).reshape(image.shape)
    return out
