"""Several processes that load a set for the first time at once, and what an interrupted one leaves."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_sets import Tiny, forking, together, write_pickles

from steep.data import declaration, known, load, sources


@pytest.fixture
def pacs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seven pictures a domain, as picture folders."""
    spec = dataclasses.replace(known.PACS, parts={name: declaration.Part(count=7) for name in known.PACS.parts})
    monkeypatch.setitem(known.KNOWN, "pacs", spec)
    for number, domain in enumerate(spec.parts):
        for index, kind in enumerate(spec.classes):
            folder = tmp_path / "PACS" / domain / kind
            folder.mkdir(parents=True)
            Image.new("RGB", (227, 227), (40 * number, 30 * index, 7)).save(folder / "a.png")
    return tmp_path


@forking
def test_parallel_first_loads_leave_every_part_readable(pacs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domains = tuple(known.KNOWN["pacs"].parts)
    real = sources._manifest

    def slow(*args: object) -> dict[str, object]:  # widens the gap between reading the manifest and writing it
        result = real(*args)  # type: ignore[arg-type]
        time.sleep(0.05)
        return result

    monkeypatch.setattr(sources, "_manifest", slow)
    assert together(lambda index: load("pacs", root=pacs, domain=domains[index]) and None, 4) == [0, 0, 0, 0]
    monkeypatch.setattr(sources, "_manifest", real)
    kept = sources._manifest(known.KNOWN["pacs"], pacs)["parts"]
    assert sorted(kept) == sorted(domains)
    for number, domain in enumerate(domains):
        result = load("pacs", root=pacs, domain=domain)
        assert result.labels.tolist() == list(range(7))
        assert result.images[:, 0, 0, 0].tolist() == [40 * number] * 7


def test_arrays_without_a_manifest_are_decoded_again(pacs: Path) -> None:
    first = load("pacs", root=pacs, domain="photo")
    (pacs / "pacs" / sources.MANIFEST).unlink()
    assert [row.state for row in sources.status("pacs", pacs)] == ["files found"] * 4
    assert [row.state for row in sources.status("pacs", pacs, check=True)] == ["ready"] * 4
    again = load("pacs", root=pacs, domain="photo")
    assert again.digest == first.digest
    assert again.origin.startswith("local: picture folders")
    assert isinstance(load("pacs", root=pacs, domain="photo").images, np.memmap)  # kept, with its checksum


def test_no_root_and_a_text_root(cifar10: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pickles(cifar10, tmp_path)
    assert [row.state for row in sources.status("cifar10", str(tmp_path))] == ["files found"] * 2
    assert set(sources.fetch("cifar10", str(tmp_path))) == {"train", "test"}
    monkeypatch.setenv("STEEP_DATA", str(tmp_path))
    assert [row.state for row in sources.status("cifar10")] == ["ready"] * 2
    assert sources.fetch("cifar10")["test"].digest == load("cifar10").digest


@pytest.mark.parametrize(("value", "tried"), [("0", True), ("", True), ("false", True), ("1", False), ("yes", False)])
def test_offline_is_a_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, tried: bool) -> None:
    asked: list[str] = []

    def elsewhere(*_: object) -> dict[str, sources.Decoded]:
        asked.append("asked")
        raise sources.DataError("not here")

    monkeypatch.setattr(sources, "_from_official", elsewhere)
    monkeypatch.setattr(sources, "_from_package", elsewhere)
    monkeypatch.setenv("STEEP_OFFLINE", value)
    with pytest.raises(sources.DataError, match="could not be fetched"):
        sources.fetch("cifar10", tmp_path)
    assert bool(asked) is tried


def test_a_stray_folder_moves_no_label(pacs: Path) -> None:
    (pacs / "PACS" / "photo" / "aardvark").mkdir()  # sorts before every class
    assert load("pacs", root=pacs, domain="photo").labels.tolist() == list(range(7))
    Image.new("RGB", (227, 227)).save(pacs / "PACS" / "photo" / "aardvark" / "a.png")
    for kept in (pacs / "pacs").iterdir():
        kept.unlink()
    with pytest.raises(sources.DataError, match="found a folder 'aardvark' too"):
        load("pacs", root=pacs, domain="photo")
