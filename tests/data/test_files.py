"""Files are whole or not there: what may be replaced, and what killed processes leave."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from steep.errors import DataError
from steep.files import writing


def write(path: Path, content: bytes = b"new") -> None:
    with writing(path) as file:
        file.write(content)


def test_a_pipe_a_device_and_a_folder_are_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    for name, kind in (("pipe", stat.S_ISFIFO), ("link", stat.S_ISLNK), ("folder", stat.S_ISDIR)):
        with pytest.raises(DataError, match=name):
            write(tmp_path / name)
        assert kind((tmp_path / name).lstat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]


def test_a_file_and_a_link_to_one_are_written(tmp_path: Path) -> None:
    write(tmp_path / "a", b"old")
    write(tmp_path / "a")
    (tmp_path / "link").symlink_to("a")
    write(tmp_path / "link", b"newer")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "link").read_bytes()) == (b"new", b"newer")


def test_what_killed_saves_left_is_removed_by_the_next_save_of_the_same_file(tmp_path: Path) -> None:
    write(tmp_path / "net.pt", b"old")
    left = {
        ".net.pt.0123abcd.tmp": 7200.0,  # of a killed save, two hours ago
        ".net.pt.89abcdef.tmp": 60.0,  # somebody is writing it now
        ".other.pt.0123abcd.tmp": 7200.0,  # of another file
        ".net.pt.mine.tmp": 7200.0,  # not named by us
        ".net.pt.0123abcd.tmp.keep": 7200.0,
    }
    for name, age in left.items():
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, times=(time.time() - age,) * 2)
    write(tmp_path / "net.pt")
    assert {path.name for path in tmp_path.iterdir()} == {"net.pt", *left} - {".net.pt.0123abcd.tmp"}
