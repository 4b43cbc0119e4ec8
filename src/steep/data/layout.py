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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steep import corruptions
from steep.core.io.arguments import check_device
from steep.corruptions.apply import check as check_images
from steep.corruptions.digital import jpeg
from steep.corruptions.parameters import checked, whole_number
from steep.data import corrupted
from steep.data.arrays import Images, ImageSet, as_images, read_npy, write_header, write_npy
from steep.data.corrupted import SEVERITIES, pieces
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
    folder, folders = Path(out), corrupted.as_jpeg(data)
    names = tuple(corruptions.BENCHMARK) if only is None else (only,) if isinstance(only, str) else only
    jobs = plan(names, severities, folders)
    seed = whole_number("seed", seed)
    paths = corrupted.file_names(data) if folders else []
    check_images(np.asanyarray(data.images[:1]))  # everything that can be wrong is said before a folder is made
    corrupted.check_shape(data)
    check_device("device", device)
    _refuse_others(folder)
    with locked(folder, ".steep-corrupt.lock", wait=False):
        manifest = _start_manifest(data, folder, seed, "folders" if folders else "arrays")
        if not folders:
            _labels(data, folder, manifest)
        with _decoded(data, folder, jobs, progress) as pictures:
            writer = _Writer(pictures, paths, folder, manifest, device, progress)
            made = tuple(job.target for job in jobs if writer.make(job))
    return Written(folder, made, tuple(job.target for job in jobs if job.target not in made))


def plan(only: Sequence[str], severities: Sequence[int], folders: bool = False) -> list[Job]:
    """Say which files a call writes."""
    if not len(severities) or not only:
        raise InputError("nothing to write: give at least one corruption and one severity")
    levels = tuple(sorted({checked(name, severity)[1] for name in only for severity in severities}))
    if folders:
        return [Job(f"{name}/{level}", name, (level,)) for name in dict.fromkeys(only) for level in levels]
    tail = "" if levels == SEVERITIES else "".join(f"_s{level}" for level in levels)
    return [Job(f"{name}{tail}.npy", name, levels) for name in dict.fromkeys(only)]


def _refuse_others(folder: Path) -> None:
    """Refuse a folder with corrupted sets that steep did not write: nobody could tell later which are whose."""
    below = (folder / name / str(level) for name in corruptions.CORRUPTIONS for level in SEVERITIES)
    others = [*sorted(folder.glob("*.npy")), *(place for place in below if place.is_dir())]
    # In this order: a run that starts just now writes its manifest first.
    if others and not corrupted.manifest_of(folder):
        raise _foreign(others[0])


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: is there, but steep did not write it; it is left alone. Choose another folder (--out)")


def _start_manifest(data: ImageSet, folder: Path, seed: int, layout: str) -> dict[str, Any]:
    """Begin the manifest of this run, joined with the one already there; refuse to mix two different sets."""
    manifest: dict[str, Any] = {
        "set": data.name,
        "digest": data.digest,
        "count": len(data),
        "seed": seed,
        "table": corrupted.table_of(data),
        "version": __version__,
        "layout": layout,
        "classes": list(data.classes),
        "files": {},
    }
    earlier = corrupted.manifest_of(folder)
    if not earlier:
        write_json(folder / MANIFEST, manifest)  # before any file, so that what follows is known to be steep's
        return manifest
    if any("corruption" in entry for entry in earlier["files"].values()):  # else it was stopped before the first file
        for key in _IDENTITY:
            if earlier.get(key) != manifest[key]:
                wrong = f"already holds a set with {key} {earlier.get(key)!r}, asked for {manifest[key]!r}"
                raise DataError(f"{folder}: {wrong}. Choose another folder (--out)")
    return {**manifest, "files": earlier["files"]}


def _labels(data: ImageSet, folder: Path, manifest: dict[str, Any]) -> None:
    """Write labels.npy, the labels five times over whatever severities are there."""
    path = folder / "labels.npy"
    labels = np.tile(data.labels, len(SEVERITIES))
    if not path.exists():
        write_npy(path, labels)
    elif not np.array_equal(read_npy(path), labels):
        raise DataError(f"{path}: not the labels of {data.name}. Choose another folder (--out)")
    manifest["files"]["labels.npy"] = {"sha256": file_sha256(path)}


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
            for piece in pieces(data.images):
                out.write(np.asarray(files[piece]).data)
                progress("decoding", min(len(data), piece.stop), len(data))
    yield replace(data, images=as_images(read_npy(path), str(path)))
    path.unlink()


@dataclass(frozen=True)
class _Writer:
    """Makes the targets of a run, one after the other."""

    data: ImageSet
    paths: list[str]  # class/name of every picture's JPEG file; none for arrays
    folder: Path
    manifest: dict[str, Any]
    device: str
    progress: Progress

    def make(self, job: Job) -> bool:
        """Make one target, or check that it is there and right; return whether it was made."""
        entry: dict[str, Any] = {"corruption": job.corruption, "severities": [*job.severities]}
        if job.corruption == "frost":
            entry["frost"] = corruptions.frost_source()
        target, parts = self.folder / job.target, self.folder / f"{job.target.replace('/', '-')}.pieces"
        total = len(self.data) * len(job.severities)
        with explained(target):
            exists = target.exists()
            if exists:
                self._check_finished(job.target, entry)
            else:
                parts.mkdir(exist_ok=True)
                self.progress(job.target, 0, total)
                join = self._join_as_folder if self.paths else self._join_as_array
                join(target, list(self._pieces(job, entry, parts, total)), entry)
            shutil.rmtree(parts, ignore_errors=True)
            self.progress(job.target, total, total)
        return not exists

    def _check_finished(self, name: str, entry: dict[str, Any]) -> None:
        """Compare every byte of a target that is there with the manifest."""
        target, recorded = self.folder / name, self.manifest["files"].get(name)
        if recorded is None:
            raise _foreign(target)
        if recorded.get("frost") != entry.get("frost"):
            made, now = f"made with {recorded.get('frost')} frost", f"now {entry.get('frost')} would be used"
            raise DataError(f"{target}: {made}, {now}. Delete it or choose another folder (--out)")
        corrupted.compare(target, recorded["sha256"], corrupted.target_sha256(target))

    def _pieces(self, job: Job, entry: dict[str, Any], parts: Path, total: int) -> Iterator[Path]:
        """Make the pieces of a target, less those that an earlier run made of the same request."""
        identity, number = {**{key: self.manifest[key] for key in _IDENTITY}, **entry}, itertools.count()
        for index, severity in enumerate(job.severities):
            for piece in pieces(self.data.images):
                asked = json.dumps({**identity, "severity": severity, "at": piece.start}, sort_keys=True)
                place = next(number)
                if (file := _kept_piece(parts, place, asked)) is None:
                    file = _keep_piece(parts, place, asked, self._corrupt(piece, job.corruption, severity))
                yield file
                self.progress(job.target, min(total, index * len(self.data) + piece.stop), total)

    def _corrupt(self, piece: slice, corruption: str, severity: int) -> bytes:
        clean: Any = np.array(self.data.images[piece])
        if self.device != "cpu":
            clean = torch.from_numpy(clean).to(self.device)
        options = {"seed": self.manifest["seed"], "first": piece.start, "table": self.manifest["table"]}
        done = corruptions.corrupt(clean, corruption, severity=severity, **options)
        return np.asarray(done if self.device == "cpu" else done.cpu()).tobytes()

    def _record(self, target: Path, entry: dict[str, Any], digest: str) -> None:
        """Before the target gets its name: whatever bears one is in the manifest, or somebody else's."""
        self.manifest["files"][target.relative_to(self.folder).as_posix()] = {**entry, "sha256": digest}
        write_json(self.folder / MANIFEST, self.manifest)

    def _join_as_array(self, target: Path, files: list[Path], entry: dict[str, Any]) -> None:
        """Write the pieces as one .npy of shape (severities × N, H, W, C)."""
        header, digest = io.BytesIO(), hashlib.sha256()
        count = len(self.data) * len(entry["severities"])
        write_header(header, (count, *self.data.images.shape[1:]), self.data.images.dtype)
        with writing(target) as out:
            for block in itertools.chain([header.getvalue()], map(Path.read_bytes, files)):
                out.write(block)
                digest.update(block)
            self._record(target, entry, digest.hexdigest())

    def _join_as_folder(self, target: Path, files: list[Path], entry: dict[str, Any]) -> None:
        """Write the pieces as JPEG files, class/name."""
        folder = files[0].parent / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.data.classes:
            (folder / name).mkdir(parents=True)

        def put(path: str, image: Images) -> None:
            with (folder / path).open("wb") as file:
                file.write(jpeg(image, **corrupted.JPEG))
                flush(file)

        with ThreadPoolExecutor(16) as pool:  # ten thousand small files: a disk takes many at once in one go
            paths = iter(self.paths)
            for file in files:
                images = np.frombuffer(file.read_bytes(), np.uint8).reshape(-1, *self.data.images.shape[1:])
                list(pool.map(put, itertools.islice(paths, len(images)), images))
        for name in self.data.classes:
            sync_folder(folder / name)
        self._record(target, entry, corrupted.target_sha256(folder))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder, target)
        sync_folder(target.parent)


def _piece_name(number: int, asked: str, content: bytes) -> str:
    """Name a piece after what was asked for and what came out: a damaged one no longer bears its name."""
    return f"{number}-{hashlib.sha256(asked.encode() + content).hexdigest()}"


def _kept_piece(parts: Path, number: int, asked: str) -> Path | None:
    """Find a piece that an earlier run made; one that is damaged or of another request will not do."""
    pieces = parts.glob(f"{number}-*[0-9a-f]")
    return next((file for file in pieces if file.name == _piece_name(number, asked, file.read_bytes())), None)


def _keep_piece(parts: Path, number: int, asked: str, content: bytes) -> Path:
    temporary, file = parts / "unfinished", parts / _piece_name(number, asked, content)
    with temporary.open("wb") as opened:
        opened.write(content)
        flush(opened)
    os.replace(temporary, file)
    return file
