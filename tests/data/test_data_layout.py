"""The published layout, resumed after any kill, whole or not there."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_sets import clean, everything, expected, sha, stubbed, tiny_imagenet

from steep import corruptions
from steep.data import corrupted, load, write
from steep.errors import DataError, InputError, UnknownNameError

Calls = list[tuple[str, int, int]]


@pytest.mark.usefixtures("small_pieces")
def test_arrays_are_as_published(stub: Calls, tmp_path: Path) -> None:
    data = clean()
    done = write(data, tmp_path / "c", only=["fog", "snow"], seed=2)
    assert done.made == ("fog.npy", "snow.npy")
    for name in ("fog", "snow"):
        loaded = np.load(tmp_path / "c" / f"{name}.npy")
        assert loaded.dtype == np.uint8
        np.testing.assert_array_equal(loaded, expected(data, name, seed=2))
    labels = np.load(tmp_path / "c" / "labels.npy")
    assert labels.tolist() == data.labels.tolist() * 5
    manifest = json.loads((tmp_path / "c" / "steep-corruptions.json").read_text())
    assert manifest["seed"] == 2
    assert manifest["digest"] == data.digest
    fog = (tmp_path / "c" / "fog.npy").read_bytes()
    assert manifest["files"]["fog.npy"]["sha256"] == hashlib.sha256(fog).hexdigest()
    assert {name for name in everything(tmp_path / "c") if not name.startswith(".")} == {
        "fog.npy",
        "snow.npy",
        "labels.npy",
        "steep-corruptions.json",
    }


def test_the_default_is_the_benchmark(stub: Calls, tmp_path: Path) -> None:
    write(clean(count=2), tmp_path)
    assert {path.stem for path in tmp_path.glob("*.npy")} == {*corruptions.BENCHMARK, "labels"}
    manifest = json.loads((tmp_path / "steep-corruptions.json").read_text())
    assert manifest["files"]["frost.npy"]["frost"] == "procedural"


def test_some_severities_go_to_a_file_nobody_mistakes(stub: Calls, tmp_path: Path) -> None:
    data = clean()
    write(data, tmp_path, only=["fog"], severities=(5, 1))
    np.testing.assert_array_equal(np.load(tmp_path / "fog_s1_s5.npy"), expected(data, "fog", (1, 5)))
    assert not (tmp_path / "fog.npy").exists()
    write(data, tmp_path, only=["fog"])
    np.testing.assert_array_equal(np.load(tmp_path / "fog.npy"), expected(data, "fog"))


def test_files_on_disk_and_made_on_the_fly_are_the_same(stub: Calls, tmp_path: Path) -> None:
    data = clean()
    np.savez(tmp_path / "set.npz", images=data.images, labels=data.labels)
    root = tmp_path / "root"
    root.mkdir()
    np.save(root / "images.npy", data.images)
    np.save(root / "labels.npy", data.labels)
    fly = load("arrays-c", root=root, corruption="fog", severity=4, seed=1)
    assert fly.origin.startswith("made: fog 4, seed 1")
    write(load("arrays", root=root), root / "arrays-c", only=["fog"], severities=(2, 4), seed=1)
    disk = load("arrays-c", root=root, corruption="fog", severity=4, seed=1)
    assert disk.origin.startswith("disk: arrays-c")
    np.testing.assert_array_equal(disk.images, fly.images)
    np.testing.assert_array_equal(disk.labels, fly.labels)
    assert disk.digest == fly.digest == sha(stubbed(data.images, "fog", 4, 1))
    assert load("arrays-c", root=root, corruption="fog", severity=4, seed=2).origin.startswith("made")
    assert load("arrays-c", root=root, corruption="fog", severity=5, seed=1).origin.startswith("made")
    np.save(root / "images.npy", data.images ^ 1)  # another clean set: the files are not of it
    assert load("arrays-c", root=root, corruption="fog", severity=4, seed=1).origin.startswith("made")


def test_published_files_of_others(cifar10: Any, stub: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    theirs = np.random.default_rng(0).integers(0, 256, (15, 32, 32, 3), dtype=np.uint8)
    np.save(folder / "fog.npy", theirs)
    np.save(folder / "labels.npy", np.tile(cifar10.test_labels, 5))
    loaded = load("cifar10-c", root=tmp_path, corruption="fog", severity=2)
    np.testing.assert_array_equal(loaded.images, theirs[3:6])
    assert loaded.labels.tolist() == cifar10.test_labels.tolist()
    assert "published files" in loaded.origin
    assert loaded.classes[3] == "cat"
    assert len(load("cifar10-c", root=tmp_path, corruption="fog", severity=2, limit=2)) == 2
    np.save(folder / "labels.npy", np.tile(cifar10.test_labels[::-1], 5) + 1)
    with pytest.raises(DataError, match="not the labels of CIFAR-10"):
        load("cifar10-c", root=tmp_path, corruption="fog", severity=2)
    np.save(folder / "fog.npy", theirs[:-1])
    with pytest.raises(DataError, match=r"fog\.npy: expected 5 × 3 pictures"):
        load("cifar10-c", root=tmp_path, corruption="fog", severity=2)


def test_folders_are_as_published(stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny_imagenet(monkeypatch)
    write(data, tmp_path / "Tiny-ImageNet-C", only=["fog"], severities=(1, 3))
    for severity in (1, 3):
        for index, image in enumerate(stubbed(data.images, "fog", severity, 0)):
            path = tmp_path / "Tiny-ImageNet-C" / "fog" / str(severity) / f"n{index % 3:02}" / f"val_{index}.JPEG"
            again = tmp_path / "again.jpg"
            Image.fromarray(image).save(again, quality=85, optimize=True)
            assert path.read_bytes() == again.read_bytes()
    assert not list(tmp_path.rglob("*.pieces"))
    loaded = load("tiny-imagenet-c", root=tmp_path, corruption="fog", severity=3)
    assert loaded.labels.tolist() == data.labels.tolist()  # val_0, val_1, … whatever the class
    fly = corrupted.made(data, "fog", 3, seed=0)
    np.testing.assert_array_equal(loaded.images, fly.images)  # made on the fly carries the JPEG pass too


@pytest.mark.usefixtures("small_pieces")
def test_finished_files_are_checked_and_kept(stub: Calls, tmp_path: Path) -> None:
    data = clean()
    write(data, tmp_path, only=["fog", "snow"])
    before, calls = everything(tmp_path), len(stub)
    again = write(data, tmp_path, only=["fog", "snow"])
    assert again.kept == ("fog.npy", "snow.npy")
    assert len(stub) == calls
    assert everything(tmp_path) == before
    (tmp_path / "fog.npy").unlink()
    assert write(data, tmp_path, only=["fog", "snow"]).made == ("fog.npy",)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("at", [-1, 0, 500])
def test_a_tampered_finished_file_is_refused(stub: Calls, tmp_path: Path, at: int) -> None:
    data = clean()
    write(data, tmp_path, only=["fog"])
    path = tmp_path / "fog.npy"
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1
    path.write_bytes(changed)
    wrong = hashlib.sha256(changed).hexdigest()
    with pytest.raises(DataError, match=f"fog.npy: expected sha256 {right}, found {wrong}"):
        write(data, tmp_path, only=["fog"])
    root = tmp_path.parent / f"{tmp_path.name}-root"
    (root / "arrays-c").mkdir(parents=True)
    np.save(root / "images.npy", data.images)
    np.save(root / "labels.npy", data.labels)
    for name, content in everything(tmp_path).items():
        (root / "arrays-c" / name).write_bytes(content)
    with pytest.raises(DataError, match=f"expected sha256 {right}, found {wrong}"):
        load("arrays-c", root=root, corruption="fog", severity=1)


def test_what_does_not_belong_together_is_not_mixed(stub: Calls, tmp_path: Path) -> None:
    data = clean()
    write(data, tmp_path / "a", only=["fog"], seed=1)
    with pytest.raises(DataError, match=r"already holds a set with seed 1, asked for 2.*--out"):
        write(data, tmp_path / "a", only=["snow"], seed=2)
    with pytest.raises(DataError, match="already holds a set with digest"):
        write(clean(classes=2, side=9), tmp_path / "a", only=["snow"], seed=1)
    (tmp_path / "b").mkdir()
    np.save(tmp_path / "b" / "fog.npy", np.zeros(3))
    with pytest.raises(DataError, match="steep did not write it; it is left alone"):
        write(data, tmp_path / "b", only=["fog"])
    assert np.load(tmp_path / "b" / "fog.npy").tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"only": ["fogg"]}, UnknownNameError, "did you mean 'fog'"),
        ({"severities": (0,)}, InputError, "severity: expected a whole number from 1 to 5, got 0"),
        ({"severities": (6,)}, InputError, "got 6"),
        ({"only": []}, InputError, "nothing to write"),
    ],
)
def test_a_wrong_call_writes_nothing(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        write(clean(), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.usefixtures("small_pieces")
def test_interrupted_anywhere_and_run_again_gives_the_same_bytes(
    stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: bool
) -> None:
    data = tiny_imagenet(monkeypatch) if folders else clean()
    if folders:
        monkeypatch.setattr(corrupted, "_CHUNK", 5 * 64 * 64 * 3)
    write(data, tmp_path / "whole", only=["fog"], severities=(1, 2))
    whole = everything(tmp_path / "whole")
    pieces = len(stub)
    real = corruptions.corrupt
    for stop in range(pieces):
        out = tmp_path / f"cut{stop}"
        left = [stop]

        def breaking(*args: Any, left: list[int] = left, **options: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return real(*args, **options)

        monkeypatch.setattr(corruptions, "corrupt", breaking)
        with pytest.raises(KeyboardInterrupt):
            write(data, out, only=["fog"], severities=(1, 2))
        monkeypatch.setattr(corruptions, "corrupt", real)
        stub.clear()
        write(data, out, only=["fog"], severities=(1, 2))
        assert len(stub) == pieces - stop  # it went on, it did not start again
        assert everything(out) == whole


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("damage", ["changed", "short", "long", "lost", "torn", "all lost", "another seed"])
def test_a_damaged_piece_is_made_again(
    stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    data = clean()
    write(data, tmp_path / "whole", only=["fog"])
    real, left = corruptions.corrupt, [4]

    def breaking(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(corruptions, "corrupt", breaking)
    with pytest.raises(KeyboardInterrupt):
        write(data, tmp_path / "cut", only=["fog"], seed=9 if damage == "another seed" else 0)
    monkeypatch.setattr(corruptions, "corrupt", real)
    folder = tmp_path / "cut" / "fog.npy.pieces"
    assert len(list(folder.iterdir())) == 4
    (second,) = folder.glob("1-*")
    content = bytearray(second.read_bytes())
    if damage == "changed":
        content[200] ^= 1
        second.write_bytes(content)
    elif damage == "short":
        second.write_bytes(content[:300])
    elif damage == "long":
        second.write_bytes(content + bytes(50_000))
    elif damage == "lost":
        second.unlink()
    elif damage == "torn":
        (folder / "unfinished").write_bytes(b"half of the next piece")
    elif damage == "all lost":
        shutil.rmtree(folder)
    stub.clear()
    write(data, tmp_path / "cut", only=["fog"])
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")
    # 12 pictures in pieces of 5, 5 and 2: four pieces are the first severity and 5 pictures of the second
    if damage in ("all lost", "another seed"):
        assert len(stub) == 15
    elif damage == "torn":
        assert stub[0] == ("fog", 2, 5)
        assert len(stub) == 11
    else:
        assert stub[:2] == [("fog", 1, 5), ("fog", 2, 5)]
        assert len(stub) == 12


@pytest.mark.parametrize("folders", [False, True])
@pytest.mark.parametrize("at", ["the record", "the name"])
def test_killed_while_the_finished_file_gets_its_name(
    stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, folders: bool
) -> None:
    data = tiny_imagenet(monkeypatch) if folders else clean()
    write(data, tmp_path / "whole", only=["fog"], severities=(1,))
    name = "fog/1" if folders else "fog_s1.npy"
    rename = os.replace

    def killed(source: Any, target: Any) -> None:
        if (Path(target).name, at) == ("steep-corruptions.json", "the record") and name in Path(source).read_text():
            raise KeyboardInterrupt
        if at == "the name" and Path(target) == tmp_path / "cut" / name:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(data, tmp_path / "cut", only=["fog"], severities=(1,))
    assert not (tmp_path / "cut" / name).exists()
    stub.clear()
    assert write(data, tmp_path / "cut", only=["fog"], severities=(1,)).made == (name,)
    assert stub == []  # every piece was there
    assert everything(tmp_path / "cut") == everything(tmp_path / "whole")


def test_a_read_only_folder(stub: Calls, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o555)
    for out in (tmp_path / "closed", tmp_path / "closed" / "below"):
        with pytest.raises(DataError, match=r"cannot be written.*--out"):
            write(clean(), out, only=["fog"])
    assert list((tmp_path / "closed").iterdir()) == []
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match="file"):
        write(clean(), tmp_path / "file", only=["fog"])


@pytest.mark.parametrize("call", [5, 12])  # of the first piece, of the joined file
def test_a_full_disk(stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    sync, calls = os.fsync, [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DataError, match=r"fog\.npy: the disk is full"):
            write(clean(), tmp_path, only=["fog"])
    assert not (tmp_path / "fog.npy").exists()
    write(clean(), tmp_path, only=["fog"])
    np.testing.assert_array_equal(np.load(tmp_path / "fog.npy"), expected(clean(), "fog"))
