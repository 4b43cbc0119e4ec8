"""Write a corruption benchmark in the layout the published ones have.

Arrays (as CIFAR-10-C): `labels.npy` with the labels five times over and, per corruption, one uint8 file of shape
(5 N, H, W, C), severity 1 first. Where only some severities are asked for, the file is called `fog_s1_s5.npy` and holds
just those, so that nobody takes it for the whole one. Folders (as Tiny-ImageNet-C): corruption/severity/class/*.JPEG,
as many severity folders as asked for.

Each file grows under another name (see `growing`) and takes its own when it is whole. Since every picture depends only
on the seed and its index, a run that was killed and started again gives the same bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steep import corruptions
from steep.corruptions.apply import check as check_images
from steep.corruptions.parameters import whole_number
from steep.data.arrays import read_npy, write_npy
from steep.data.corrupted import (
    MANIFEST,
    SEVERITIES,
    check_device,
    check_request,
    check_shape,
    chunks,
    manifest_of,
    table_of,
)
from steep.data.downloads import Progress, silent
from steep.data.growing import ArrayFile, Growing, PictureFolder
from steep.data.imageset import ImageSet
from steep.data.known import KNOWN
from steep.data.locks import locked
from steep.errors import DataError, InputError
from steep.files import explained, file_sha256, write_json
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
    layout = "folders" if KNOWN[data.name].corrupted_as_jpeg else "arrays"
    names = tuple(corruptions.BENCHMARK) if only is None else (only,) if isinstance(only, str) else only
    jobs = plan(names, severities, layout)
    seed = whole_number("seed", seed)
    check_images(data.images[:1])  # everything that can be wrong is said before a folder is made
    check_shape(data)
    check_device(device)
    _refuse_others(folder)
    with _locked(folder):
        manifest = _start_manifest(data, folder, seed, layout)
        if layout == "arrays":
            _labels(data, folder, manifest)
        made: list[str] = []
        for job in jobs:
            with explained(folder / job.target):
                if _make(job, data, folder, manifest, device, progress):
                    made.append(job.target)
    return Written(folder, tuple(made), tuple(job.target for job in jobs if job.target not in made))


def plan(only: Sequence[str], severities: Sequence[int], layout: str = "arrays") -> list[Job]:
    """Say which files a call writes.

    >>> [job.target for job in plan(["fog"], (1, 2, 3, 4, 5))]
    ['fog.npy']
    >>> [job.target for job in plan(["fog"], (5, 1))], [job.target for job in plan(["fog"], (5, 1), "folders")]
    (['fog_s1_s5.npy'], ['fog/1', 'fog/5'])
    """
    if not len(severities) or not only:
        raise InputError("nothing to write: give at least one corruption and one severity")
    levels = tuple(sorted({check_request(name, severity)[1] for name in only for severity in severities}))
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
        "table": table_of(data.name, data.images),
        "version": __version__,
        "layout": layout,
        "classes": list(data.classes),
        "files": {},
    }
    earlier = manifest_of(folder)
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
    if others and manifest_of(folder) is None:  # in this order: a run that starts just now writes its manifest first
        raise _foreign(others[0])


def _foreign(path: Path) -> DataError:
    return DataError(f"{path}: is there, but steep did not write it; it is left alone. Choose another folder (--out)")


def _make(job: Job, data: ImageSet, folder: Path, manifest: dict[str, Any], device: str, progress: Progress) -> bool:
    """Make one target, or check that it is there and right; return whether it was made."""
    entry: dict[str, Any] = {"corruption": job.corruption, "severities": [*job.severities]}
    if job.corruption == "frost":
        entry["frost"] = corruptions.frost_source()
    identity = {**{key: manifest[key] for key in _IDENTITY}, **entry}
    target = (PictureFolder if manifest["layout"] == "folders" else ArrayFile)(folder, job.target, data, identity)
    exists = target.target.exists()
    if exists:
        digest = _check_finished(target, manifest["files"].get(job.target), entry)
    else:
        manifest["files"].pop(job.target, None)  # recorded once, deleted since
        progress(job.target, target.resume(), target.total)
        while target.done < target.total:
            severity, start = job.severities[target.done // len(data)], target.done % len(data)
            options: dict[str, Any] = {"seed": manifest["seed"], "table": manifest["table"], "device": device}
            for piece in chunks(data.images, job.corruption, severity, start=start, **options):
                target.append(piece)
                progress(job.target, target.done, target.total)
        digest = target.finish()
    if job.target not in manifest["files"]:
        _record(job.target, folder, manifest, {**entry, "sha256": digest})
    target.forget()
    progress(job.target, target.total, target.total)
    return not exists


def _check_finished(target: Growing, recorded: dict[str, Any] | None, entry: dict[str, Any]) -> str:
    """Check a target that is there: every byte against the manifest, or against the journal of a run just killed."""
    expected = recorded["sha256"] if recorded else target.promised_sha256()
    if expected is None:
        raise _foreign(target.target)
    if recorded and recorded.get("frost") != entry.get("frost"):
        raise DataError(
            f"{target.target}: made with {recorded.get('frost')} frost, now {entry.get('frost')} would be used. "
            "Delete it or choose another folder (--out)"
        )
    digest = target.sha256()
    if digest != expected:
        raise DataError(
            f"{target.target}: expected sha256 {expected}, found {digest}. Delete it and run the same command again"
        )
    return digest


def _record(target: str, folder: Path, manifest: dict[str, Any], entry: dict[str, Any]) -> None:
    manifest["files"][target] = entry
    write_json(folder / MANIFEST, manifest)


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
def _locked(folder: Path) -> Iterator[None]:
    """Keep a second run out of the same folder."""
    try:
        with locked(folder, ".steep-corrupt.lock", wait=False):
            yield
    except BlockingIOError:
        raise DataError(f"{folder}: another run is writing here. Wait for it or choose another folder") from None
