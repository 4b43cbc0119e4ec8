"""Unpack archives that somebody else made: nothing is written outside the folder, nothing half-read is used."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from steep.errors import DataError
from steep.files import explained

GZ_LIMIT = 64 << 20  # bytes, in memory at once: the largest such file here is MNIST's, 47 MB
LIMIT = 16 << 30  # bytes an archive may unpack to; the largest set here needs 3 GB

_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def unpack(archive: Path, into: Path, *, limit: int = LIMIT) -> None:
    """Unpack a .tar, .tar.gz, .tgz or .zip below `into`.

    Only plain files and folders are taken. A member that would land outside `into` (an absolute path, `..`) and a
    link or device refuse the whole archive, as do a truncated archive and one that unpacks to more than `limit` bytes.
    """
    left = limit
    with explained(into), _members(archive) as members:
        for name, file in members:
            target = _inside(name, into, archive)
            if file is None:
                target.mkdir(parents=True, exist_ok=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while block := file.read(1 << 20):
                    left -= len(block)
                    if left < 0:
                        raise DataError(f"{archive}: refused, it unpacks to more than {limit} bytes")
                    out.write(block)


def unpack_gz(path: Path, *, limit: int = GZ_LIMIT) -> bytes:
    """Read a whole .gz file, refusing a truncated one and one that unpacks to more than `limit` bytes."""
    try:
        with gzip.open(path, "rb") as file:
            data = file.read(limit + 1)
    except (*_DAMAGE, OSError) as error:
        raise DataError(f"{path}: truncated or damaged ({error}). Delete it and fetch again") from error
    if len(data) > limit:
        raise DataError(f"{path}: refused, it unpacks to more than {limit} bytes. Delete it and fetch again")
    return data


Members = Iterator[tuple[str, IO[bytes] | None]]  # a folder has no file


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[Members]:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield _of_zip(zipped, archive)
        else:
            with tarfile.open(archive) as tarred:
                yield _of_tar(tarred, archive)
    except _DAMAGE as error:
        raise DataError(f"{archive}: truncated or damaged ({error}). Delete it and fetch again") from error


def _of_zip(zipped: zipfile.ZipFile, archive: Path) -> Members:
    for entry in zipped.infolist():
        if entry.flag_bits & 1:
            raise DataError(f"{archive}: refused, {entry.filename!r} is encrypted")
        if entry.is_dir():
            yield entry.filename, None
        else:
            with zipped.open(entry) as file:
                yield entry.filename, file


def _of_tar(tarred: tarfile.TarFile, archive: Path) -> Members:
    for entry in tarred:
        if entry.isdir():
            yield entry.name, None
        elif entry.isfile():
            yield entry.name, tarred.extractfile(entry)
        else:
            raise DataError(f"{archive}: refused, {entry.name!r} is a link or a device, not a plain file")
    while tarred.fileobj is not None and tarred.fileobj.read(1 << 20):
        pass  # to the end, where the compression keeps its checksum: tarfile stops before it


def _inside(name: str, into: Path, archive: Path) -> Path:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name:
        raise DataError(f"{archive}: refused, its member {name!r} points outside the folder it is unpacked to")
    return into.joinpath(*parts.parts)
