"""What lies on disk is taken for a published set only where it is that set, and is called what it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_sets import Tiny, clean, everything, sha, tiny_imagenet, write_pickles

from steep.data import ImageSet, corrupted, load, write
from steep.errors import DataError, InputError

Calls = list[tuple[str, int, int]]


@pytest.fixture
def official(cifar10: Tiny, tmp_path: Path) -> Path:
    """Somebody's CIFAR-10-C: fog, frost and labels, no manifest. Returns its folder; the clean set lies beside it."""
    write_pickles(cifar10, tmp_path)
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for seed, name in enumerate(("fog", "frost")):
        images = np.random.default_rng(seed).integers(0, 256, (15, 32, 32, 3), dtype=np.uint8)
        np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", np.tile(cifar10.test_labels, 5))
    return folder


def test_frost_keeps_its_label_on_disk(cifar10: Tiny, stub: Calls, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    write(load("cifar10", root=tmp_path), tmp_path / "CIFAR-10-C", only=["frost", "fog"])
    assert load("cifar10-c", root=tmp_path, corruption="frost", severity=2).origin.endswith("seed 0, procedural frost")
    assert load("cifar10-c", root=tmp_path, corruption="fog", severity=2).origin.endswith("seed 0")


def test_an_official_folder_is_not_written_to(official: Path, stub: Calls) -> None:
    before = everything(official)
    for only in ("snow", "fog"):
        with pytest.raises(DataError, match=r"steep did not write it; it is left alone.*--out"):
            write(load("cifar10", root=official.parent), official, only=[only])
    assert everything(official) == before


def test_what_the_manifest_does_not_list_is_not_called_ours(official: Path, stub: Calls, tmp_path: Path) -> None:
    other = tmp_path / "ours"
    write(load("cifar10", root=tmp_path), other, only=["snow"], seed=0)
    for name in ("snow.npy", "steep-corruptions.json"):
        shutil.copyfile(other / name, official / name)
    assert load("cifar10-c", root=tmp_path, corruption="fog", severity=1).origin.endswith("published files")
    assert "steep" in load("cifar10-c", root=tmp_path, corruption="snow", severity=1).origin


def test_a_file_of_a_killed_run_is_not_called_published(
    cifar10: Tiny, stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pickles(cifar10, tmp_path)
    rename = os.replace

    def killed(source: Any, target: Any) -> None:
        if Path(target).name == "fog.npy":
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            write(load("cifar10", root=tmp_path), tmp_path / "CIFAR-10-C", only=["fog"])
    assert (tmp_path / "CIFAR-10-C" / "fog.npy.pieces").exists()
    assert load("cifar10-c", root=tmp_path, corruption="fog", severity=1).origin.startswith("made")


def test_a_stopped_run_does_not_bind_the_folder(stub: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("steep.corruptions.corrupt", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write(clean(), tmp_path, only=["fog"], seed=1)
    write(clean(), tmp_path, only="fog", seed=2)
    assert json.loads((tmp_path / "steep-corruptions.json").read_text())["seed"] == 2


@pytest.mark.parametrize("key", ["digest", "table", "count"])
def test_a_folder_made_of_something_else_is_passed_over(cifar10: Tiny, stub: Calls, tmp_path: Path, key: str) -> None:
    write_pickles(cifar10, tmp_path)
    folder = tmp_path / "CIFAR-10-C"
    write(load("cifar10", root=tmp_path), folder, only=["fog"])
    assert load("cifar10-c", root=tmp_path, corruption="fog", severity=1).origin.startswith("disk")
    path = folder / "steep-corruptions.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, key: {"digest": "0" * 64, "table": None, "count": 4}[key]}))
    assert load("cifar10-c", root=tmp_path, corruption="fog", severity=1).origin.startswith("made")


def test_files_of_another_size_are_refused(official: Path) -> None:
    np.save(official / "fog.npy", np.zeros((15, 48, 48, 3), np.uint8))
    with pytest.raises(DataError, match=r"fog\.npy: expected pictures of shape \(32, 32, 3\).*got \(48, 48, 3\)"):
        load("cifar10-c", root=official.parent, corruption="fog", severity=1)


def test_a_resized_published_set_is_not_written(cifar10: Tiny, stub: Calls, tmp_path: Path) -> None:
    write_pickles(cifar10, tmp_path)
    with pytest.raises(InputError, match=r"size: cifar10 is corrupted at its own 32 × 32 pixels"):
        write(load("cifar10", root=tmp_path, size=48), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"device": "cuda:99"}, "device: .* got 'cuda:99'"), ({"device": "nonsense"}, "device"), ({"seed": True}, "seed")],
)
def test_a_wrong_call_makes_no_folder(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        write(clean(), tmp_path / "out", only="fog", **options)
    with pytest.raises(InputError, match="at least 8 pixels"):
        write(clean(side=7), tmp_path / "out", only="fog")
    assert not (tmp_path / "out").exists()


def test_numpy_numbers_are_numbers(stub: Calls, tmp_path: Path) -> None:
    write(clean(), tmp_path, only="fog", severities=np.array([1, 5]), seed=np.int64(3))  # type: ignore[arg-type]
    assert (tmp_path / "fog_s1_s5.npy").exists()
    with pytest.raises(InputError, match="severity: expected a whole number from 1 to 5, got True"):
        write(clean(), tmp_path, only="fog", severities=(True,))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: Calls) -> tuple[ImageSet, Path]:
    """A Tiny-ImageNet of 12 pictures in 3 classes, and its fog 1 as steep writes it."""
    data = tiny_imagenet(monkeypatch)
    write(data, tmp_path / "Tiny-ImageNet-C", only="fog", severities=(1,))
    return data, tmp_path


@pytest.mark.parametrize("harm", ["byte", "moved", "swapped", "extra", "gone"])
def test_a_tampered_folder_that_steep_wrote_is_refused(tiny: tuple[ImageSet, Path], harm: str) -> None:
    data, root = tiny
    here = root / "Tiny-ImageNet-C" / "fog" / "1"
    assert load("tiny-imagenet-c", root=root, corruption="fog", severity=1).labels.tolist() == data.labels.tolist()
    first, second = here / "n00" / "val_0.JPEG", here / "n01" / "val_1.JPEG"
    if harm == "byte":
        first.write_bytes(first.read_bytes()[:-3] + b"\0\xff\xd9")
    elif harm == "moved":
        first.rename(here / "n01" / "val_0.JPEG")  # another label
    elif harm == "swapped":
        one, two = first.read_bytes(), second.read_bytes()
        first.write_bytes(two)
        second.write_bytes(one)
    elif harm == "extra":
        shutil.copyfile(first, here / "n00" / "val_99.JPEG")
    else:
        first.unlink()
    with pytest.raises(DataError, match=r"expected sha256 \w{64}, found \w{64}"):
        load("tiny-imagenet-c", root=root, corruption="fog", severity=1)


@pytest.mark.parametrize("part", ["count", "class", "renamed"])
def test_a_partial_folder_of_others_is_refused(tiny: tuple[ImageSet, Path], part: str) -> None:
    data, root = tiny
    folder = root / "Tiny-ImageNet-C"
    (folder / "steep-corruptions.json").unlink()
    assert load("tiny-imagenet-c", root=root, corruption="fog", severity=1).origin.endswith("published files")
    here, message = folder / "fog" / "1", "class folders"
    if part == "count":
        (here / "n00" / "val_0.JPEG").unlink()
        message = "expected 12 pictures, found 11"
    elif part == "class":
        for path in (here / "n00").iterdir():
            path.rename(here / "n01" / path.name)
        (here / "n00").rmdir()
    else:  # the clean set's classes are known from its kept arrays
        (root / "tiny-imagenet").mkdir()
        (root / "tiny-imagenet" / "steep-data.json").write_text(json.dumps({"classes": list(data.classes)}))
        (here / "n00").rename(here / "n77")
    with pytest.raises(DataError, match=message):
        load("tiny-imagenet-c", root=root, corruption="fog", severity=1)


def test_nothing_needs_os_sync(tiny: tuple[ImageSet, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has none, and elsewhere it waits for every other program's files."""
    monkeypatch.delattr("os.sync", raising=False)
    write(tiny[0], tmp_path / "again", only="fog", severities=(1,))
    assert len(list((tmp_path / "again").rglob("*.JPEG"))) == 12


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 9, 1), (9, 1, 3), (1, 1, 1)])
def test_pictures_of_one_pixel(shape: tuple[int, int, int]) -> None:
    from steep.corruptions.digital import jpeg
    from steep.data.arrays import resized

    image = np.full(shape, 77, np.uint8)
    assert jpeg(image, **corrupted.JPEG)[:2] == b"\xff\xd8"
    assert resized(image[None], 4).tolist() == np.full((1, 4, 4, shape[2]), 77).tolist()
    assert sha(resized(image[None], 1)) == sha(np.full((1, 1, 1, shape[2]), 77, np.uint8))
