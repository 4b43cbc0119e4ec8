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
    has_jpeg_pass,
    manifest_of,
    table_of,
)
from steep.data.downloads import Progress, silent
from steep.data.growing import ArrayFile, PictureFolder
from steep.data.imageset import ImageSet
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
    layout = "folders" if has_jpeg_pass(data.name) else "arrays"
    names = tuple(corruptions.BENCHMARK) if only is None else (only,) if isinstance(only, str) else only
    jobs = plan(names, severities, layout)
    seed = whole_number("seed", seed)
    check_images(data.images[:1])  # everything that can be wrong is said before a folder is made
    check_shape(data)
    check_device(device)
    _refuse_others(folder)
    with _locked(folder):
        manifest = _opened(data, folder, seed, layout)
        if layout == "arrays":
            _labels(data, folder, manifest)
        made: list[str] = []
        for job in jobs:
            with explained(folder / job.target):
                if _one(job, data, folder, manifest, device, progress):
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


def _opened(data: ImageSet, folder: Path, seed: int, layout: str) -> dict[str, Any]:
    """The manifest of this run, joined with the one already there; refuse to mix two different sets."""
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
    there = manifest_of(folder)
    if there is None:
        write_json(folder / MANIFEST, manifest)  # before any file, so that what follows is known to be steep's
        return manifest
    if any("corruption" in entry for entry in there["files"].values()):  # else it was stopped before the first file
        for key in _IDENTITY:
            if there.get(key) != manifest[key]:
                raise DataError(
                    f"{folder}: already holds a set with {key} {there.get(key)!r}, asked for {manifest[key]!r}. "
                    "Choose another folder (--out)"
                )
    manifest["files"] = there["files"]
    return manifest


def _refuse_others(folder: Path) -> None:
    """Refuse a folder with corrupted sets that steep did not write: nobody could tell later which are whose."""
    below = (folder / name / str(level) for name in corruptions.CORRUPTIONS for level in SEVERITIES)
    found = [*sorted(folder.glob("*.npy")), *(place for place in below if place.is_dir())]
    if found and manifest_of(folder) is None:  # in this order: a run that starts just now writes its manifest first
        raise DataError(
            f"{found[0]}: is there, but steep did not write it; it is left alone. Choose another folder (--out)"
        )


def _one(job: Job, data: ImageSet, folder: Path, manifest: dict[str, Any], device: str, progress: Progress) -> bool:
    """Make one target, or check that it is there and right; return whether it was made."""
    mine = {**{key: manifest[key] for key in _IDENTITY}, "corruption": job.corruption, "severities": [*job.severities]}
    if job.corruption == "frost":
        mine["frost"] = corruptions.frost_source()
    target = (PictureFolder if manifest["layout"] == "folders" else ArrayFile)(folder, job.target, data, mine)
    total = len(data) * len(job.severities)
    if target.target.exists():
        _kept(job, target, folder, manifest, mine, total)
        progress(job.target, total, total)
        return False
    manifest["files"].pop(job.target, None)  # recorded once, deleted since
    try:
        progress(job.target, target.resume(), total)
        while target.done < total:
            severity = job.severities[target.done // len(data)]
            for piece in chunks(
                data.images,
                job.corruption,
                severity,
                seed=manifest["seed"],
                table=manifest["table"],
                start=target.done % len(data),
                device=device,
            ):
                target.append(piece)
                progress(job.target, target.done, total)
        digest = target.finish()
    finally:
        target.close()
    _record(job, folder, manifest, mine, digest)
    target.forget()
    return True


def _kept(
    job: Job,
    target: ArrayFile | PictureFolder,
    folder: Path,
    manifest: dict[str, Any],
    mine: dict[str, Any],
    total: int,
) -> None:
    """Check a target that is there: every byte against the manifest, or against the journal of a run just killed."""
    said = manifest["files"].get(job.target)
    expected = said["sha256"] if said else target.promised(total)
    if expected is None:
        raise DataError(
            f"{target.target}: is there, but steep did not write it; it is left alone. Choose another folder (--out)"
        )
    if said and said.get("frost") != mine.get("frost"):
        raise DataError(
            f"{target.target}: made with {said.get('frost')} frost, now {mine.get('frost')} would be used. "
            "Delete it or choose another folder (--out)"
        )
    found = target.found_sha256()
    if found != expected:
        raise DataError(
            f"{target.target}: expected sha256 {expected}, found {found}. Delete it and run the same command again"
        )
    if not said:
        _record(job, folder, manifest, mine, expected)
    target.forget()


def _record(job: Job, folder: Path, manifest: dict[str, Any], mine: dict[str, Any], digest: str) -> None:
    entry: dict[str, Any] = {"corruption": job.corruption, "severities": [*job.severities], "sha256": digest}
    if "frost" in mine:
        entry["frost"] = mine["frost"]
    manifest["files"][job.target] = entry
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
