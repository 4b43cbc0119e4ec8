"""Files that are either whole or not there (temporary name beside the target, fsync, rename), and locks on folders."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from steep.errors import DataError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_ABANDONED_SECONDS = 3600.0


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """Return the same, but read a file only once per process and state."""
    now = path.stat()
    return _sha256(path, now.st_size, now.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read it. A pipe, which would wait for its writer, or a device, without an end, is an `OSError`."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    number, why = (errno.EISDIR, "Is a directory") if stat.S_ISDIR(kind) else (errno.EINVAL, "Not a regular file")
    raise OSError(number, why, str(path))


def read_bytes(path: Path) -> bytes:
    """Read a whole file at once, if it is a regular one."""
    with open_regular(path) as file:
        return file.read()


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise errors of the file system inside the block as `DataError` about `path`, with the fix."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        if error.errno in _FULL:
            why = (
                f"the disk is full ({why}); nothing was left under that name. Free some space or choose another folder"
            )
        elif error.errno in _READ_ONLY:
            why = f"cannot be written ({why}). Choose a folder you may write to (--out, --root or STEEP_DATA)"
        else:
            why += ". Choose another folder or repair this one"
        raise DataError(f"{path}: {why}") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; it takes the name only when the block ends well.

    A pipe, device or folder under that name is refused. What killed processes have left of the same name is removed.
    """
    with explained(path):
        make_folder(path.parent)
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file, so it is not replaced")
        _remove_abandoned(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                flush(file)
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of `path` that nobody has written to for an hour: their process was killed."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.tmp")
    with os.scandir(path.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):  # another process was faster
                    if time.time() - entry.stat().st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)


def make_folder(folder: Path) -> None:
    """Make a folder, honouring a read-only one even for a user whom the system lets write everywhere."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "read-only folder", str(nearest))
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def locked(folder: Path, name: str = "", *, wait: bool = True) -> Iterator[None]:
    """Hold the lock file `name` in `folder`, or the folder itself; the folder is made where it is not there.

    Without `wait`, a folder that somebody else holds is a `DataError`. A file system without locks is used without:
    every file is written whole or not at all in any case.
    """
    path = folder / name
    with explained(path):
        make_folder(folder)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with explained(path):
        handle = os.open(path, os.O_CREAT | os.O_RDWR if name else os.O_RDONLY, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(f"{folder}: another run is writing here. Wait for it or choose another folder") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)


def flush(file: BinaryIO) -> None:
    """Push everything written so far to the disk itself."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut, where the system can."""
    with contextlib.suppress(OSError):  # not every file system lets a folder be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def user_folder() -> Path:
    """Return steep's folder in the place the platform keeps a user's caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "steep"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "steep"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "steep"


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file, whole or not at all, and name it."""
    with writing(path) as file:
        file.write(content)
    return path


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON; a file that is not JSON is a `DataError` that names it."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}). Delete it or bring back the original") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
