"""Write a corruption benchmark in the layout the published ones have.

Arrays (as CIFAR-10-C): `labels.npy` with the labels five times over and, per corruption, one uint8 file of shape
(5 N, H, W, C), severity 1 first. Where only some severities are asked for, the file is called `fog_s1_s5.npy` and holds
just those, so that nobody takes it for the whole one. Folders (as Tiny-ImageNet-C and ImageNet-C):
corruption/severity/class/*.JPEG, as many severity folders as asked for. Picture files are decoded once, into an array
in the output folder that is there while it is needed.

Each file is made in pieces (`fog.npy.pieces`), each whole or not there, which are joined when all are. Since every
picture depends only on the seed and its index, a run that was killed and started again gives the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from steep import corruptions
from steep.corruptions.apply import check as check_images
from steep.corruptions.digital import jpeg
from steep.corruptions.parameters import checked, whole_number
from steep.data import corrupted
from steep.data.arrays import Images, ImageSet, as_images, read_npy, write_header, write_npy
from steep.data.corrupted import SEVERITIES
from steep.data.downloads import Progress, silent
from steep.data.picture_files import MANIFEST
from steep.data.streamed import streamed
from steep.errors import DataError, InputError
from steep.files import explained, file_sha256, flush, locked, sync_folder, write_json, writing
from steep.version import __version__

_IDENTITY = ("set", "digest", "count", "seed", "table", "version", "layout")


@dataclass(frozen=True)
class Written:
    """What a run left: the folder, the files made now and those kept from before."""

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One file (or severity folder) to write."""

    target: str  # below the output folder
    corruption: str
    severities: tuple[int, ...]


def write(
    data: ImageSet,
    out: str | os.PathLike[str],
    *,
    only: str | Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = silent,
) -> Written:
    """Write corrupted variants of a clean set below `out`; call again with the same arguments to go on.

    `only` names the corruptions (by default the 15 of the benchmark). Finished files are checked against the manifest
    and kept. A folder made with another seed, set or version is refused, as is one with corrupted sets in it that steep
    did not write.
    """
    folder = Path(out)
    layout = "folders" if corrupted.as_jpeg(data.name, data.images.shape) else "arrays"
    names = tuple(corruptions.BENCHMARK) if only is None else (only,) if isinstance(only, str) else only
    jobs = plan(names, severities, layout)
    seed = whole_number("seed", seed)
    paths = corrupted.file_names(data) if layout == "folders" else []
    check_images(np.asanyarray(data.images[:1]))  # everything that can be wrong is said before a folder is made
    corrupted.check_shape(data)
    corrupted.check_device(device)
    _refuse_others(folder)
    with locked(folder, ".steep-corrupt.lock", wait=False):
        manifest = _start_manifest(data, folder, seed, layout)
        if layout == "arrays":
            _labels(data, folder, manifest)
        made: list[str] = []
        with _decoded(data, folder, jobs, progress) as pictures:
            for job in jobs:
                with explained(folder / job.target):
                    if _make(job, pictures, paths, folder, manifest, device, progress):
                        made.append(job.target)
    return Written(folder, tuple(made), tuple(job.target for job in jobs if job.target not in made))


@contextlib.contextmanager
def _decoded(data: ImageSet, folder: Path, jobs: Sequence[Job], progress: Progress) -> Iterator[ImageSet]:
    """Decode picture files once, as every corruption needs them all; a run that is stopped keeps them for the next."""
    files = streamed(data.images)
    if files is None or all((folder / job.target).exists() for job in jobs):
        yield data
        return
    path = folder / f".decoded-{data.digest[:16]}.npy"
    if not path.exists():
        with writing(path) as out:
            write_header(out, files.shape, files.dtype)
            for piece in corrupted.pieces(data.images):
                out.write(np.asarray(files[piece]).data)
                progress("decoding", min(len(data), piece.stop), len(data))
    yield replace(data, images=as_images(read_npy(path), str(path)))
    path.unlink()


def plan(only: Sequence[str], severities: Sequence[int], layout: str = "arrays") -> list[Job]:
    """Say which files a call writes.

    >>> [job.target for job in plan(["fog"], (1, 2, 3, 4, 5))]
    ['fog.npy']
    >>> [job.target for job in plan(["fog"], (5, 1))], [job.target for job in plan(["fog"], (5, 1), "folders")]
    (['fog_s1_s5.npy'], ['fog/1', 'fog/5'])
    """
    if not len(severities) or not only:
        raise InputError("nothing to write: give at least one corruption and one severity")
    levels = tuple(sorted({checked(name, severity)[1] for name in only for severity in severities}))
    if layout == "folders":
        return [Job(f"{name}/{level}", name, (level,)) for name in dict.fromkeys(only) for level in levels]
    tail = "" if levels == SEVERITIES else "".join(f"_s{level}" for level in levels)
    return [Job(f"{name}{tail}.npy", name, levels) for name in dict.fromkeys(only)]


def _start_manifest(data: ImageSet, folder: Path, seed: int, layout: str) -> dict[str, Any]:
    """Begin the manifest of this run, joined with the one already there; refuse to mix two different sets."""
    manifest: dict[str, Any] = {
        "set": data.name,
        "digest": data.digest,
        "count": len(data),
        "seed": seed,
        "table": corrupted.table_of(data.name, data.images.shape),
        "version": __version__,
        "layout": layout,
        "classes": list(data.classes),
        "files": {},
    }
    earlier = corrupted.manifest_of(folder)
    if earlier is None:
        write_json(folder / MANIFEST, manifest)  # before any file, so that what follows is known to be steep's
        return manifest
    if any("corruption" in entry for entry in earlier["files"].values()):  # else it was stopped before the first file
        for key in _IDENTITY:
            if earlier.get(key) != manifest[key]:
                raise DataError(
                    f"{folder}: already holds a set with {key} {earlier.get(key)!r}, asked for {manifest[key]!r}. "
                    "Choose another folder (--out)"
                )
    manifest["files"] = earlier["files"]
    return manifest


def _refuse_others(folder: Path) -> None:
    """Refuse a folder with corrupted sets that steep did not write: nobody could tell later which are whose."""
    below = (folder / name / str(level) for name in corruptions.CORRUPTIONS for level in SEVERITIES)
    others = [*sorted(folder.glob("*.npy")), *(place for place in below if place.is_dir())]
    # In this order: a run that starts just now writes its manifest first.
    if others and corrupted.manifest_of(folder) is None:
        raise _foreign(others[0])


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: is there, but steep did not write it; it is left alone. Choose another folder (--out)")


def _make(
    job: Job,
    data: ImageSet,
    paths: list[str],
    folder: Path,
    manifest: dict[str, Any],
    device: str,
    progress: Progress,
) -> bool:
    """Make one target, or check that it is there and right; return whether it was made."""
    entry: dict[str, Any] = {"corruption": job.corruption, "severities": [*job.severities]}
    if job.corruption == "frost":
        entry["frost"] = corruptions.frost_source()
    target, parts = folder / job.target, folder / f"{job.target.replace('/', '-')}.pieces"
    total = len(data) * len(job.severities)
    exists = target.exists()
    if exists:
        _check_finished(target, manifest["files"].get(job.target), entry)
    else:
        parts.mkdir(exist_ok=True)
        progress(job.target, 0, total)
        files: list[Path] = []
        for severity in job.severities:
            for piece in corrupted.pieces(data.images):
                asked = {**{key: manifest[key] for key in _IDENTITY}, **entry, "severity": severity, "at": piece.start}
                file = _kept_piece(parts, len(files), asked)
                if file is None:
                    options = {"seed": manifest["seed"], "table": manifest["table"], "device": device}
                    images = corrupted.corrupted_piece(data.images, piece, job.corruption, severity, **options)
                    file = _keep_piece(parts, len(files), asked, images.tobytes())
                files.append(file)
                progress(job.target, min(total, job.severities.index(severity) * len(data) + piece.stop), total)

        def record(digest: str) -> None:
            """Before the target gets its name: whatever bears one is in the manifest, or somebody else's."""
            manifest["files"][job.target] = {**entry, "sha256": digest}
            write_json(folder / MANIFEST, manifest)

        if paths:
            _join_as_folder(target, data, paths, files, record)
        else:
            _join_as_array(target, data, files, record)
    shutil.rmtree(parts, ignore_errors=True)
    progress(job.target, total, total)
    return not exists


def _check_finished(target: Path, recorded: dict[str, Any] | None, entry: dict[str, Any]) -> None:
    """Compare every byte of a target that is there with the manifest."""
    if recorded is None:
        raise _foreign(target)
    if recorded.get("frost") != entry.get("frost"):
        raise DataError(
            f"{target}: made with {recorded.get('frost')} frost, now {entry.get('frost')} would be used. "
            "Delete it or choose another folder (--out)"
        )
    corrupted.compare(target, recorded["sha256"], corrupted.target_sha256(target))


def _piece_name(number: int, asked: dict[str, Any], content: bytes) -> str:
    """Name a piece after what was asked for and what came out: a damaged one no longer bears its name."""
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode() + content)
    return f"{number}-{digest.hexdigest()}"


def _kept_piece(parts: Path, number: int, asked: dict[str, Any]) -> Path | None:
    """Find a piece that an earlier run made; one that is damaged or of another request will not do."""
    pieces = parts.glob(f"{number}-*[0-9a-f]")
    return next((file for file in pieces if file.name == _piece_name(number, asked, file.read_bytes())), None)


def _keep_piece(parts: Path, number: int, asked: dict[str, Any], content: bytes) -> Path:
    temporary, file = parts / "unfinished", parts / _piece_name(number, asked, content)
    with temporary.open("wb") as opened:
        opened.write(content)
        flush(opened)
    os.replace(temporary, file)
    return file


def _join_as_array(target: Path, data: ImageSet, files: list[Path], record: Callable[[str], None]) -> None:
    """Write the pieces as one .npy of shape (severities × N, H, W, C)."""
    header = io.BytesIO()
    pictures = sum(file.stat().st_size for file in files) // data.images[0].nbytes
    write_header(header, (pictures, *data.images.shape[1:]), data.images.dtype)
    digest = hashlib.sha256()
    with writing(target) as out:
        for block in itertools.chain([header.getvalue()], map(Path.read_bytes, files)):
            out.write(block)
            digest.update(block)
        record(digest.hexdigest())


def _join_as_folder(
    target: Path, data: ImageSet, paths: list[str], files: list[Path], record: Callable[[str], None]
) -> None:
    """Write the pieces as JPEG files at `paths`, class/name."""
    folder = files[0].parent / "folder"
    shutil.rmtree(folder, ignore_errors=True)
    for name in data.classes:
        (folder / name).mkdir(parents=True)

    def put(index: int, image: Images) -> None:
        with (folder / paths[index]).open("wb") as file:
            file.write(jpeg(image, **corrupted.JPEG))
            flush(file)

    with ThreadPoolExecutor(16) as pool:  # ten thousand small files: a disk takes many at once in one go
        indices = itertools.count()
        for file in files:
            images = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, *data.images.shape[1:])
            list(pool.map(put, itertools.islice(indices, len(images)), images))
    for name in data.classes:
        sync_folder(folder / name)
    record(corrupted.target_sha256(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(folder, target)
    sync_folder(target.parent)


def _labels(data: ImageSet, folder: Path, manifest: dict[str, Any]) -> None:
    """Write labels.npy, the labels five times over whatever severities are there."""
    path = folder / "labels.npy"
    labels = np.tile(data.labels, len(SEVERITIES))
    if not path.exists():
        write_npy(path, labels)
    elif not np.array_equal(read_npy(path), labels):
        raise DataError(f"{path}: not the labels of {data.name}. Choose another folder (--out)")
    manifest["files"]["labels.npy"] = {"sha256": file_sha256(path)}
