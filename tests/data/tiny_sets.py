"""Tiny stand-ins for the real sets, written by code that shares nothing with the readers under test."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import multiprocessing
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from steep.data import ImageSet, declaration, known


def sha(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Tiny:
    """Ten training and three test pictures, in the real set's name."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray

    def batches(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        for index in range(5):
            at = slice(2 * index, 2 * index + 2)
            yield f"data_batch_{index + 1}", self.train[at], self.train_labels[at]
        yield "test_batch", self.test, self.test_labels


def _text(value: bytes) -> bytes:
    """A Python-2 string, as the published pickles hold them."""
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def python2_batch(images: np.ndarray, labels: np.ndarray, key: bytes = b"labels") -> bytes:
    """Assemble a batch opcode by opcode as Python 2 wrote it: protocol 2, byte strings, numpy.core."""
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + _text(b"u1") + b"K\x00K\x01\x87R(K\x03" + _text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"K" + bytes([rows.shape[0]]) + b"M" + struct.pack("<H", rows.shape[1]) + b"\x86"
    array += b"(K\x01" + shape + dtype + b"\x89" + _text(rows.tobytes()) + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + _text(b"data") + array + _text(key) + numbers + b"u."


def as_known(tiny: Tiny, base: declaration.DataSet) -> declaration.DataSet:
    parts = {
        "train": declaration.Part(count=10, images_sha256=sha(tiny.train), labels_sha256=sha(tiny.train_labels)),
        "test": declaration.Part(count=3, images_sha256=sha(tiny.test), labels_sha256=sha(tiny.test_labels)),
    }
    return dataclasses.replace(base, parts=parts)


def tiny_set(shape: tuple[int, int, int], classes: int, seed: int) -> Tiny:
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 256, (13, *shape), dtype=np.uint8)
    labels = draw.integers(0, classes, 13)
    return Tiny(pixels[:10], labels[:10], pixels[10:], labels[10:])


def write_pickles(tiny: Tiny, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, images, labels in tiny.batches():
        (folder / name).write_bytes(python2_batch(images, labels))


def write_rows(tiny: Tiny, folder: Path) -> None:
    """The npm package: one picture per row of a PNG, label lists beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, images, _ in tiny.batches():
        Image.fromarray(images.reshape(len(images), 1024, 3)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps(tiny.train_labels.tolist()))
    (folder / "test_lables.json").write_text(json.dumps(tiny.test_labels.tolist()))


def tarball(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def hostile(path: Path, name: str, link: str | None = None) -> Path:
    """A tar whose second member wants to be somewhere else."""
    with tarfile.open(path, "w:gz") as archive:
        for member, text in (("cifar-10-batches-py/readme", b"fine"), (name, b"owned")):
            entry = tarfile.TarInfo(member)
            if member == name and link is not None:
                entry.type, entry.linkname = tarfile.SYMTYPE, link
                archive.addfile(entry)
            else:
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
    return path


def stubbed(images: np.ndarray, name: str, severity: int, seed: int, first: int = 0) -> np.ndarray:
    index = (np.arange(len(images)) + first).reshape(-1, 1, 1, 1)
    return (images.astype(int) + len(name) + 10 * severity + 3 * seed + index).astype(np.uint8)


def clean(name: str = "arrays", count: int = 12, side: int = 8, classes: int = 3) -> ImageSet:
    draw = np.random.default_rng(5)
    images = draw.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    return ImageSet(
        images=images,
        labels=np.arange(count) % classes,
        classes=tuple(f"n{index:02}" for index in range(classes)),
        name=name,
        split="test",
        origin="here",
        digest=sha(images),
    )


def expected(data: ImageSet, name: str, severities: tuple[int, ...] = (1, 2, 3, 4, 5), seed: int = 0) -> np.ndarray:
    return np.concatenate([stubbed(data.images, name, severity, seed) for severity in severities])


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tiny_imagenet(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """Twelve pictures in three classes, under the real set's name."""
    parts = {"train": declaration.Part(count=1), "val": declaration.Part(count=12)}
    monkeypatch.setitem(
        known.KNOWN, "tiny-imagenet", dataclasses.replace(known.TINY_IMAGENET, parts=parts, class_count=3)
    )
    return clean("tiny-imagenet", side=64)


forking = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def together(call: Callable[[int], None], count: int) -> list[int | None]:
    """Run `call(0)`, `call(1)`, … as processes that start at the same moment; return their exit codes."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)

    def start(index: int) -> None:
        barrier.wait(30)
        call(index)

    running = [context.Process(target=start, args=(index,)) for index in range(count)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    return [process.exitcode for process in running]


def png(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is of any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 64))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")
