"""Targets that grow piece by piece under another name and survive a kill.

Beside `fog.npy.partial` lies `fog.npy.journal`: its first line says what is being made, each further line how many
pictures are written and the running sha256 up to there. A new run checks the lines one after the other against the
bytes that really are on disk and goes on behind the last one that is right.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from steep.data.arrays import Images, write_header
from steep.data.corrupted import encoded, picture_bytes
from steep.data.imageset import ImageSet
from steep.data.known import KNOWN
from steep.files import flush, sync_folder


class Growing(abc.ABC):
    """What arrays and picture folders share: the journal."""

    def __init__(self, folder: Path, target: str, data: ImageSet, identity: dict[str, Any]) -> None:
        self.target = folder / target
        stem = target.replace("/", "-")
        self.partial, self.journal = folder / f"{stem}.partial", folder / f"{stem}.journal"
        self.data, self.identity = data, identity
        self.total = len(data) * len(identity["severities"])
        self.digest = hashlib.sha256()
        self.done = 0  # pictures

    def resume(self) -> int:
        """Get ready to append; return how many pictures are there already and right."""
        lines = self._read_journal()
        right = [self.identity]
        if lines[:1] == right:
            for line in lines[1:]:
                digest = self.digest.copy()
                try:
                    for block in self._written(self.partial, self.done, line["images"]):
                        digest.update(block)
                except (OSError, EOFError):
                    break
                if digest.hexdigest() != line["sha256"]:
                    break
                self.digest, self.done = digest, line["images"]
                right.append(line)
        if not self.done and self.partial.is_dir():
            shutil.rmtree(self.partial)
        self.journal.write_text("".join(json.dumps(line) + "\n" for line in right))
        self._begin()
        return self.done

    def append(self, images: Images) -> None:
        """Write the next pictures, then say so in the journal."""
        self._write(images)
        self.done += len(images)
        with self.journal.open("a") as file:
            file.write(json.dumps({"images": self.done, "sha256": self.digest.hexdigest()}) + "\n")

    def finish(self) -> str:
        """Give the target its name and return its sha256; the journal stays until `forget`."""
        self._push()
        self.target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.partial, self.target)
        sync_folder(self.target.parent)
        return self.digest.hexdigest()

    def forget(self) -> None:
        """Remove the journal, once the manifest knows the target."""
        self.journal.unlink(missing_ok=True)

    def promised_sha256(self) -> str | None:
        """Return the sha256 the journal gives for the whole target, for a run killed between renaming and recording."""
        lines = self._read_journal()
        if lines[:1] == [self.identity] and lines[-1].get("images") == self.total:
            return str(lines[-1]["sha256"])
        return None

    def sha256(self) -> str:
        """Return the sha256 of the finished target as it lies on disk."""
        digest = hashlib.sha256()
        for block in self._written(self.target, 0, self.total):
            digest.update(block)
        return digest.hexdigest()

    def _read_journal(self) -> list[dict[str, Any]]:
        """The whole lines of the journal; a kill may have torn the last one."""
        lines: list[dict[str, Any]] = []
        with contextlib.suppress(OSError, ValueError):
            lines.extend(map(json.loads, self.journal.read_text(errors="replace").splitlines()))
        return lines

    @abc.abstractmethod
    def _written(self, place: Path, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes of pictures `start` to `stop` as they lie at `place`."""

    @abc.abstractmethod
    def _begin(self) -> None:
        """Get ready to write picture `self.done`."""

    @abc.abstractmethod
    def _write(self, images: Images) -> None:
        """Write pictures and add their bytes to the digest."""

    @abc.abstractmethod
    def _push(self) -> None:
        """Push everything to the disk itself."""


class ArrayFile(Growing):
    """One .npy of shape (severities × N, H, W, C). Its sha256 is that of the file."""

    def __init__(self, folder: Path, target: str, data: ImageSet, identity: dict[str, Any]) -> None:
        super().__init__(folder, target, data, identity)
        header = io.BytesIO()
        write_header(header, (self.total, *data.images.shape[1:]), data.images.dtype)
        self._header = header.getvalue()

    def _end(self, count: int) -> int:
        return len(self._header) + count * int(self.data.images[0].nbytes)

    def _written(self, place: Path, start: int, stop: int) -> Iterator[bytes]:
        with place.open("rb") as file:
            position = self._end(start) if start else 0  # the header goes with the first picture
            file.seek(position)
            left = self._end(stop) - position
            while left:
                block = file.read(min(left, 1 << 20))
                if not block:
                    raise EOFError
                left -= len(block)
                yield block
            if place == self.target:  # anything behind the last picture is a wrong byte too
                yield file.read()

    def _begin(self) -> None:
        if self.done:
            os.truncate(self.partial, self._end(self.done))
        else:
            self.partial.write_bytes(self._header)
            self.digest.update(self._header)

    def _write(self, images: Images) -> None:
        block = images.tobytes()
        with self.partial.open("ab") as file:
            file.write(block)
        self.digest.update(block)

    def _push(self) -> None:
        with self.partial.open("r+b") as file:
            flush(file)


class PictureFolder(Growing):
    """corruption/severity/class/val_0.JPEG … Its sha256 is that of all files (`picture_bytes`) in picture order."""

    def _path(self, place: Path, index: int) -> Path:
        part = KNOWN[self.data.name].splits[self.data.split]
        return place / self.data.classes[int(self.data.labels[index])] / f"{part}_{index}.JPEG"

    def _written(self, place: Path, start: int, stop: int) -> Iterator[bytes]:
        return picture_bytes(self._path(place, index) for index in range(start, stop))

    def _begin(self) -> None:
        for name in self.data.classes:
            (self.partial / name).mkdir(parents=True, exist_ok=True)

    def _write(self, images: Images) -> None:
        for offset, image in enumerate(images):
            path = self._path(self.partial, self.done + offset)
            path.write_bytes(encoded(image))
            for block in picture_bytes([path]):
                self.digest.update(block)

    def _push(self) -> None:
        def push(path: Path) -> None:
            with path.open("r+b") as file:
                flush(file)

        with ThreadPoolExecutor(16) as pool:  # ten thousand small files: a disk takes many at once in one go
            for _ in pool.map(push, self.partial.rglob("*.JPEG")):
                pass
        for name in self.data.classes:
            sync_folder(self.partial / name)
