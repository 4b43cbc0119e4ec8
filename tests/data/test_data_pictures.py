"""Pictures that somebody else made: no program is started, nothing hangs, whatever is wrong is a `DataError`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image
from tiny_sets import png

from steep.data import load
from steep.data.picture_files import picture
from steep.errors import DataError
from steep.pictures import FORMATS, open_picture
from steep.predicting.pictures import open_pictures

pytestmark = pytest.mark.hostile

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 8 8
%%EndComments
0 0 8 8 rectfill
showpage
%%EOF
"""


@pytest.fixture
def ghostscript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `gs` that leaves a mark when it is started."""
    mark, tools = tmp_path / "mark", tmp_path / "tools"
    tools.mkdir()
    (tools / "gs").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (tools / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow remembers whether it was there
    return mark


def test_the_stand_in_would_be_started_by_pillow_itself(ghostscript: Path) -> None:
    with pytest.raises(OSError), Image.open(io.BytesIO(EPS)) as opened:  # noqa: PT011 (whatever it raises)
        opened.load()
    assert ghostscript.exists()


def test_postscript_named_as_a_photograph_starts_nothing(tmp_path: Path, ghostscript: Path) -> None:
    folder = tmp_path / "photos" / "beach"
    folder.mkdir(parents=True)
    (folder / "holiday.jpg").write_bytes(EPS)
    with pytest.raises(DataError, match="holiday"):
        load("folder", root=tmp_path / "photos")
    with pytest.raises(DataError, match="holiday"):
        open_pictures(tmp_path / "photos").read(0, 32, 3)
    with pytest.raises(DataError, match="holiday"):
        picture(folder / "holiday.jpg")
    assert not ghostscript.exists()


def test_no_format_is_opened_whose_plug_in_starts_a_program_or_opens_anything_inside() -> None:
    Image.init()
    for name in FORMATS:
        if name in Image.OPEN:
            module = sys.modules[Image.OPEN[name][0].__module__]
            assert not hasattr(module, "register_handler"), name  # hands the file to another library
    assert not {"EPS", "WMF", "BUFR", "GRIB", "HDF5", "FITS", "IPTC", "ICNS", "ICO", "MPEG", "PSD"} & set(FORMATS)


def saved(form: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.arange(48 * 48 * 3, dtype=np.uint8).reshape(48, 48, 3)).save(out, form)
    return out.getvalue()


HOSTILE = {
    "decompression bomb": png(1 << 20, 1 << 20),
    "pixels that are missing": png(1000, 1000),
    "empty": b"",
    "text": b"not a picture at all",
    **{f"{form} cut short": saved(form)[:-200] for form in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM")},
    "DDS": b"DDS " + bytes(200),
    "BLP": b"BLP2" + bytes(200),
    "AVIF of garbage": b"\0\0\0\x1cftypavif" + bytes(range(200)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_bytes_are_a_data_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a.png").write_bytes(HOSTILE[kind])
    with pytest.raises(DataError, match=r"a\.png"):
        picture(tmp_path / "a.png")
    with pytest.raises(DataError), open_picture(io.BytesIO(HOSTILE[kind])) as opened:
        opened.load()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000"])
def test_the_usual_formats_are_read_whatever_their_name_says(tmp_path: Path, form: str) -> None:
    (tmp_path / "a.jpg").write_bytes(saved(form))
    assert picture(tmp_path / "a.jpg").shape == (48, 48, 3)


def test_a_pipe_or_a_folder_named_as_a_picture_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    for name in ("pipe.jpg", "folder.jpg", "loop.jpg", "nothing.jpg"):
        with pytest.raises(DataError, match=name):
            picture(tmp_path / name)
