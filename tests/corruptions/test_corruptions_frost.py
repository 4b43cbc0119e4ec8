"""The frost pictures: obtained, checked, cached, replaced where they cannot be had."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile

import numpy as np
import pytest
import torch

import steep.corruptions
from steep.corruptions import corrupt, frost
from steep.errors import DataError, SteepWarning

IMAGES = np.full((3, 32, 32, 3), 100, np.uint8)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, the real lookup, and no way out."""
    monkeypatch.undo()  # the folder's stand-in for frost._pictures
    monkeypatch.setenv("STEEP_CACHE", str(tmp_path))
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    frost._pictures.cache_clear()
    frost.atlas.cache_clear()
    yield tmp_path / "frost"
    frost._pictures.cache_clear()
    frost.atlas.cache_clear()


@pytest.fixture
def fake(monkeypatch):
    """Small stand-ins for the pictures, with digests to match: name -> bytes."""
    from io import BytesIO

    from PIL import Image

    contents = {}
    for i, name in enumerate(frost.DIGESTS):
        picture = np.random.default_rng(i).integers(0, 256, (200 + i, 260, 3), dtype=np.uint8)
        buffer = BytesIO()
        Image.fromarray(picture).save(buffer, "PNG")
        contents[name] = buffer.getvalue()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(frost, "DIGESTS", digests)
    return contents


def wheel(path, contents, **more):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"imagecorruptions/frost/{name}", content)
        for name, content in more.items():
            archive.writestr(name, content)
    return path


def test_offline_falls_back_with_one_warning(cache):
    with pytest.warns(SteepWarning, match="procedural texture .*STEEP_OFFLINE"):
        out = corrupt(IMAGES, "frost")
    assert (out != IMAGES).any()
    # No second warning: it would be an error here.
    assert steep.corruptions.frost_source() == "procedural"
    corrupt(IMAGES, "frost", 2)


def test_cached_pictures_are_used(cache, fake):
    cache.mkdir()
    for name, content in fake.items():
        (cache / name).write_bytes(content)
    assert steep.corruptions.frost_source() == "imagecorruptions"
    assert corrupt(IMAGES, "frost").shape == IMAGES.shape


def test_a_tampered_picture_is_not_used(cache, fake):
    cache.mkdir()
    for name, content in fake.items():
        (cache / name).write_bytes(content)
    (cache / "frost4.jpg").write_bytes(b"x" + fake["frost4.jpg"])
    with pytest.warns(SteepWarning):
        assert steep.corruptions.frost_source() == "procedural"


def test_fetch_asks_pip_by_name_and_keeps_only_the_pictures(cache, fake, monkeypatch):
    monkeypatch.delenv("STEEP_OFFLINE")
    asked = []

    def pip(command, **options):
        asked.append(command)
        wheel(command[command.index("--dest") + 1] + "/a.whl", fake, **{"../../evil.py": b"", "code.py": b""})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    assert steep.corruptions.frost_source() == "imagecorruptions"
    assert asked[0][-1].startswith("imagecorruptions")
    assert sorted(p.name for p in cache.iterdir()) == sorted(fake)
    assert sorted(p.name for p in cache.parent.iterdir()) == ["frost"]


@pytest.mark.parametrize("failure", ["exit", "timeout", "nothing", "no pip"])
def test_a_failed_download_says_why(cache, monkeypatch, failure):
    monkeypatch.delenv("STEEP_OFFLINE")

    def pip(command, **options):
        if failure == "timeout":
            raise subprocess.TimeoutExpired(command, 120)
        if failure == "no pip":
            raise FileNotFoundError("no such interpreter")
        return subprocess.CompletedProcess(command, int(failure == "exit"), "", "first\nERROR: no route")

    monkeypatch.setattr(subprocess, "run", pip)
    reason = {"exit": "no route", "timeout": "120 s", "nothing": "one wheel", "no pip": "no such"}[failure]
    with pytest.warns(SteepWarning, match=reason):
        assert steep.corruptions.frost_source() == "procedural"


def test_extract_refuses_a_wrong_digest_and_writes_nothing(tmp_path, fake):
    folder = tmp_path / "out"
    folder.mkdir()
    bad = wheel(tmp_path / "bad.whl", fake | {"frost5.jpg": b"other"})
    with pytest.raises(DataError, match=r"frost5.jpg: expected sha256 \w{64}, found \w{64}"):
        frost.extract(bad, folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("damage", ["truncated", "not a zip", "no pictures"])
def test_extract_refuses_a_damaged_archive(tmp_path, fake, damage):
    path = wheel(tmp_path / "a.whl", fake if damage != "no pictures" else {}, code=b"1")
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    if damage == "not a zip":
        path.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"a\.whl: not the imagecorruptions"):
        frost.extract(path, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.whl"]


def test_a_full_disk_leaves_nothing_half_written(tmp_path, fake, monkeypatch):
    folder = tmp_path / "out"
    folder.mkdir()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataError, match="No space"):
        frost.extract(wheel(tmp_path / "a.whl", fake), folder)
    assert list(folder.iterdir()) == []


def test_windows_reach_every_corner_and_no_padding():
    """Rows and columns come from [0, size - side), upper end excluded, for each picture's own size."""
    from steep.corruptions.random import Stream

    _, heights, widths = frost.atlas(32, 32, 3, torch.device("cpu"))
    stream = Stream(0, "frost", 1, 0, 20000)
    picture, spot = stream.integers(0, 5), stream.uniform(2).double()
    rows = (spot[:, 0] * (heights[picture] - 32)).long()
    columns = (spot[:, 1] * (widths[picture] - 32)).long()
    for k in range(5):
        mine = picture == k
        assert abs(mine.float().mean() - 0.2) < 0.015
        assert (rows[mine].min(), rows[mine].max()) == (0, heights[k] - 33)
        assert (columns[mine].min(), columns[mine].max()) == (0, widths[k] - 33)


def test_cache_folder_without_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("STEEP_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert frost.cache_folder().parts[-2:] == ("steep", "frost")


@pytest.mark.network
def test_real_pictures_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("STEEP_CACHE", str(tmp_path))
    monkeypatch.delenv("STEEP_OFFLINE", raising=False)
    frost._pictures.cache_clear()
    try:
        assert steep.corruptions.frost_source() == "imagecorruptions"
        shapes = [p.shape for p in frost._pictures()[1]]
        assert shapes == [(600, 900, 3), (315, 560, 3), (315, 560, 3), (350, 527, 3), (495, 660, 3)]
    finally:
        frost._pictures.cache_clear()
        frost.atlas.cache_clear()
