"""Which pictures of a folder are found, what their folders say, and that hostile ones start nothing."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import steep
from steep.cli import main
from steep.errors import DataError
from steep.pictures import FORMATS
from steep.predicting import Predictions, open_pictures, predict

pytestmark = pytest.mark.hostile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(("a", "b", "c")):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((8, 8), 60 * number + i, np.uint8)).save(tmp_path / "set" / name / f"{i}.png")
    return tmp_path / "set"


def test_links_are_followed_and_never_round_in_circles(folder: Path, tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    (behind / "x").symlink_to(folder / "a", target_is_directory=True)
    (behind / "back").symlink_to(behind, target_is_directory=True)
    (folder / "a" / "up").symlink_to(folder, target_is_directory=True)
    names = open_pictures(behind).names
    assert sorted(name for name in names if name.count("/") == 1) == [f"x/{i}.png" for i in range(4)]
    assert len(names) == 12  # a itself, and b and c over the link up; a not again


def test_what_cannot_be_read_has_a_row_that_says_so(folder: Path) -> None:
    (folder / "a" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "b" / "phone.heic").write_bytes(b"not one Pillow reads")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "c" / "moving.gif")
    predictions = predict(
        steep.models.build("wrn-10-1", 3, in_channels=1), open_pictures(folder), "source", classes="abc", channels=1
    )
    rows = {row.file: row for row in predictions.rows}
    assert len(rows) == 15
    assert rows["c/moving.gif"].label is not None
    for name in ("a/gone.png", "b/phone.heic"):
        assert rows[name].skipped.startswith("unreadable")


def test_a_picture_beside_the_folders_leaves_the_rest_mixed(folder: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "stray.png")
    pictures = open_pictures(folder)
    order: list[int] = []

    def read(index: int, size: int | None, channels: int) -> NDArray[np.uint8]:
        order.append(index)
        return pictures.read(index, size, channels)

    model = steep.models.build("wrn-10-1", 3, in_channels=1)
    watched = type(pictures)(pictures.names, pictures.folders, read)
    predictions = predict(model, watched, "source", classes="abc", channels=1, size=8)
    assert sorted(order) == list(range(13))
    assert order != sorted(order)
    assert predictions.remark is not None
    assert "stray.png" in predictions.remark


def test_where_no_folder_is_no_accuracy_is_spoken_of(folder: Path) -> None:
    flat = open_pictures(folder / "a")
    assert flat.labels("abc", 3) == ([None] * 4, ("a", "b", "c"), None)


def test_a_folder_is_listed_once_under_its_real_name(folder: Path) -> None:
    before = open_pictures(folder).names
    (folder / "A-link").symlink_to(folder / "c", target_is_directory=True)
    assert open_pictures(folder).names == before


def test_folders_linked_to_each_other_are_listed_once(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / name / "0.png")
        for other in "abcdefgh":
            (tmp_path / name / f"to-{other}").symlink_to(tmp_path / other, target_is_directory=True)
    assert open_pictures(tmp_path).names == tuple(f"{name}/0.png" for name in "abcdefgh")


def test_what_is_no_regular_file_has_a_row_that_says_so(folder: Path) -> None:
    (folder / "a" / "round.png").symlink_to(folder / "a" / "round.png")
    os.mkfifo(folder / "a" / "pipe.png")
    (folder / "b" / "round").symlink_to(folder / "b" / "round")
    predictions = predict(
        steep.models.build("wrn-10-1", 3, in_channels=1), open_pictures(folder), "source", classes="abc", channels=1
    )
    assert sorted(predictions.unreadable) == ["a/pipe.png", "a/round.png"]
    assert len(predictions.rows) == 14


@pytest.mark.parametrize("name", ["d", "a-rather-long-name"])  # the second one longer in all than a path may be
def test_folders_may_be_nested_deeply(folder: Path, name: str) -> None:
    here = os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(1_100):
            os.mkdir(name)
            os.chdir(name)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save("deep.png")
    finally:
        os.chdir(here)
    try:
        pictures = open_pictures(folder)
        assert len(pictures) == 13
        deepest = next(number for number, each in enumerate(pictures.names) if each.startswith(name))
        if pictures.names[deepest].endswith("deep.png"):
            assert pictures.read(deepest, None, 1).shape == (8, 8, 1)
        else:  # a folder that the system does not list stands for what is in it
            with pytest.raises(DataError, match="too long"):
                pictures.read(deepest, None, 1)
    finally:
        subprocess.run(["rm", "-rf", str(folder / name)], check=True)  # shutil would recurse


@pytest.mark.parametrize("form", ["AVIF", "TIFF", "WEBP", "PNG", "DDS"])
def test_a_damaged_picture_of_any_format_has_a_row_that_says_so(form: str, folder: Path) -> None:
    """Pillow raises RuntimeError, NotImplementedError and others over some of these."""
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(data, form)
    whole = data.getvalue()
    (folder / "a" / "cut.png").write_bytes(whole[:20])
    (folder / "a" / "half.png").write_bytes(whole[: len(whole) // 2])
    (folder / "a" / "flags.png").write_bytes(b"DDS " + (124).to_bytes(4, "little") + bytes(200))
    for at in range(50, 130):
        torn = bytearray(whole)
        torn[at] ^= 0xFF
        (folder / "b" / f"torn-{at}.jpg").write_bytes(torn)
    predictions = predict(
        steep.models.build("wrn-10-1", 3, in_channels=1),
        open_pictures(folder),
        "source",
        classes="abc",
        channels=1,
        size=8,
    )
    assert len(predictions.rows) == 12 + 3 + 80
    assert {"a/cut.png", "a/flags.png"} <= set(predictions.unreadable)


HOSTILE = {  # what Pillow gives to a program, to another library, or opens a second time: Image.OPEN's names
    "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n",
    "WMF": b"\xd7\xcd\xc6\x9a\0\0" + bytes(40),
    "BUFR": b"BUFR" + bytes(60),
    "GRIB": b"GRIB\0\0\0\1" + bytes(60),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(60),
    "FITS": b"SIMPLE  =                    T" + bytes(2850),
    "MPEG": b"\0\0\1\xb3" + bytes(60),
    "PSD": b"8BPS\0\1" + bytes(60),
}
WRITTEN = ("ICO", "ICNS", "PCX", "TGA", "SGI", "SPIDER", "DDS")  # and these it can write itself


def hostile(form: str) -> bytes:
    if form in HOSTILE:
        return HOSTILE[form]
    data = io.BytesIO()
    Image.fromarray(np.zeros((16, 16), np.uint8)).convert("F" if form == "SPIDER" else "RGB").save(data, form)
    return data.getvalue()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which plug-ins outside the list of formats were asked about a file."""
    Image.init()
    names: list[str] = []
    for form in set(Image.OPEN) - set(FORMATS):

        def accept(prefix: bytes, form: str = form) -> bool:
            names.append(form)
            return False

        monkeypatch.setitem(Image.OPEN, form, (Image.OPEN[form][0], accept))
    return names


@pytest.mark.parametrize("form", [*HOSTILE, *WRITTEN])
def test_no_plug_in_that_starts_a_program_is_asked_about_a_hostile_picture(
    form: str, folder: Path, asked: list[str]
) -> None:
    (folder / "a" / "holiday.jpg").write_bytes(hostile(form))
    (folder / "b" / f"honest.{form.lower()}").write_bytes(hostile(form))
    with pytest.raises(OSError, match="cannot identify"):
        Image.open(folder / "a" / "holiday.jpg").close()
    assert form in asked  # by Pillow itself
    asked.clear()
    model = steep.models.build("wrn-10-1", 3, in_channels=1)
    predictions = predict(model, open_pictures(folder), "source", classes="abc", channels=1)
    assert "a/holiday.jpg" in predictions.unreadable
    assert len(predictions.rows) >= 13
    assert not asked


def test_ctrl_c_keeps_what_was_answered(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "own.py").write_text(
        "import steep\ndef make():\n    return steep.models.build('wrn-10-1', 3, in_channels=1)\n"
    )
    adapt = Predictions.add

    def add(self: Predictions, numbers: list[int], x: torch.Tensor) -> None:
        if self.batches == 2:
            raise KeyboardInterrupt
        adapt(self, numbers, x)

    monkeypatch.setattr(Predictions, "add", add)
    words = ["--model", f"{tmp_path / 'own.py'}:make", "--images", str(folder), "--channels", "1", "--device", "cpu"]
    assert main(["predict", *words, "--batch-size", "4", "--method", "bn", "--out", str(tmp_path / "p.csv")]) == 130
    printed = capsys.readouterr()
    assert "stopped after 8 of 12 pictures" in printed.err
    assert "accuracy on 8:" in printed.out
    assert "Traceback" not in printed.err
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert len(lines) == 9
    assert lines[1:] == sorted(lines[1:])
