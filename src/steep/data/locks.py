"""Locks between processes, where the system has them; they end with the process that holds them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from steep.files import explained, make_folder


@contextlib.contextmanager
def locked(folder: Path, name: str = "", *, wait: bool = True) -> Iterator[None]:
    """Hold the lock file `name` in `folder`, or the folder itself; the folder is made where it is not there.

    Without `wait`, raise BlockingIOError where somebody else holds it. A file system without locks is used without:
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
            raise
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
