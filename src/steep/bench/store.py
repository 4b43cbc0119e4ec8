"""The store: an append-only file of rows that survives a kill at any moment and may be shared by processes.

Beside `rows.jsonl` lies `rows.jsonl.lock`, an empty file whose bytes are locked: byte 0 while a row is written, one
byte per cell (found by its key) while that cell runs. The kernel drops the locks of a process that dies, however it
dies, so a claim can not outlive its owner and nothing has to expire. What else lies there while a bench is not whole:
`steep.bench.rows`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from steep.bench.rows import Row, StoreError, decode, encode, file_of, parse, read_grids, write_grids
from steep.errors import SteepError
from steep.files import flush

if sys.platform != "win32":
    import fcntl


class Store:
    """Rows on disk, by key. Opening repairs a torn last line; one process opens a store once."""

    def __init__(self, path: str | Path) -> None:
        self.path = file_of(path)
        if sys.platform == "win32":
            raise StoreError(f"{self.path}: several processes share a store by locks that Windows has not. Use WSL")
        self.notes: list[str] = []  # what had to be repaired
        self._rows: dict[str, Row] = {}
        self._read = 0  # bytes of the file already in _rows
        self._lines = 0
        self._begun = False  # whether a grid was
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            self._lock = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{self.path}: expected to write there, got {error.strerror or error}") from error
        try:
            with self._writing():
                self._repair()
            self.refresh()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Row:
        return self._rows[key]

    @property
    def rows(self) -> list[Row]:
        """Every row known so far, in the order written."""
        return list(self._rows.values())

    def refresh(self) -> None:
        """Read what other processes have written since."""
        *lines, _ = self._unread().split(b"\n")
        for row in parse(lines, self.path, first=self._lines + 1):
            self._rows[row["key"]] = row
        self._read += sum(map(len, lines)) + len(lines)
        self._lines += len(lines)

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row: one write, forced to the disk, or nothing at all."""
        line = encode(row)
        try:
            with self._writing():
                self._repair()
                end = os.fstat(self._file).st_size
                try:
                    written = os.write(self._file, line)
                    if written != len(line):
                        raise OSError(f"only {written} of {len(line)} bytes fitted")
                    os.fsync(self._file)
                except OSError as error:
                    with contextlib.suppress(OSError):
                        os.ftruncate(self._file, end)
                    why = error.strerror or error
                    raise StoreError(f"{self.path}: the row could not be written ({why})") from error
        finally:
            self.refresh()  # who is interrupted while the disk is waited for still knows the row

    def begin(self, grid: Iterable[str]) -> None:
        """Remember the cells of a grid until each of them has a row."""
        wanted = sorted(set(grid))
        self._begun = True
        with self._writing():
            self.refresh()
            others = [other for other in read_grids(self.path) if other != wanted]
            write_grids(self.path, [*others, wanted], self)

    def claim(self, key: str) -> bool:
        """Take a cell for this process; False where another one is at it."""
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError:
            return False
        return True

    def release(self, key: str) -> None:
        """Give a cell back; a process that ends gives back all of its cells."""
        fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, _byte(key))

    def close(self) -> None:
        """Forget the grids that are whole, close the files and give every claim back."""
        if self._begun:
            with contextlib.suppress(OSError, SteepError), self._writing():  # a reader counts for itself
                self.refresh()
                write_grids(self.path, read_grids(self.path), self)
            self._begun = False
        for handle in (self._file, self._lock):
            with contextlib.suppress(OSError):
                os.close(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX, 1, 0)
        except OSError as error:
            why = f"its file system cannot lock files ({error.strerror})"
            raise StoreError(f"{self.path}: {why}; put the store elsewhere") from error
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN, 1, 0)

    def _unread(self) -> bytes:
        with open(self._file, "rb", closefd=False) as file:
            file.seek(self._read)
            return file.read()

    def _repair(self) -> None:
        """End the file with a whole line: a torn one goes to `rows.jsonl.torn`, and its cell will run again."""
        torn = self._unread().rpartition(b"\n")[2]
        if not torn:
            return
        try:
            decode(torn)
        except ValueError:
            aside = self.path.with_name(self.path.name + ".torn")
            with aside.open("ab") as file:
                file.write(torn + b"\n")
                flush(file)
            os.ftruncate(self._file, os.fstat(self._file).st_size - len(torn))
            self.notes.append(f"the last line was torn ({len(torn)} bytes); moved to {aside.name}, its cell runs again")
        else:  # only its end of line is missing
            os.write(self._file, b"\n")
        os.fsync(self._file)


def _byte(key: str) -> int:
    """Find the byte of a cell. Two cells on one byte, as likely as 1 in 10¹⁸, would only wait for each other."""
    return 1 + int(key[:15], 16)
