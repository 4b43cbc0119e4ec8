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
    with explained(into), _undamaged(archive):
        for name, file in _members(archive):
            parts = PurePosixPath(name.replace("\\", "/"))
            if parts.is_absolute() or ".." in parts.parts or ":" in name or "\0" in name:
                raise DataError(f"{archive}: refused, its member {name!r} points outside the folder it is unpacked to")
            target = into.joinpath(*parts.parts)
            (target.parent if file else target).mkdir(parents=True, exist_ok=True)
            if file is None:
                continue
            with target.open("wb") as out:
                while block := file.read(1 << 20):
                    left -= len(block)
                    if left < 0:
                        raise DataError(f"{archive}: refused, it unpacks to more than {limit} bytes")
                    out.write(block)


def unpack_gz(path: Path, *, limit: int = GZ_LIMIT) -> bytes:
    """Read a whole .gz file, refusing a truncated one and one that unpacks to more than `limit` bytes."""
    with _undamaged(path), gzip.open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path}: refused, it unpacks to more than {limit} bytes. Delete it and fetch again")
    return data


@contextlib.contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise DataError(f"{path}: truncated or damaged ({error}). Delete it and fetch again") from error


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Name every member, with its file unless it is a folder."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if entry.flag_bits & 1:
                    raise DataError(f"{archive}: refused, {entry.filename!r} is encrypted")
                with zipped.open(entry) as file:
                    yield entry.filename, None if entry.is_dir() else file
        return
    with tarfile.open(archive) as tarred:
        for member in tarred:
            if not (member.isdir() or member.isfile()):
                raise DataError(f"{archive}: refused, {member.name!r} is a link or a device, not a plain file")
            yield member.name, tarred.extractfile(member)  # None of a folder
        while tarred.fileobj is not None and tarred.fileobj.read(1 << 20):
            pass  # to the end, where the compression keeps its checksum: tarfile stops before it
