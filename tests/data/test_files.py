"""Files are whole or not there: what may be replaced, and what killed processes leave."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import steep
from steep.analysis import stream
from steep.bench import rows
from steep.data import load
from steep.errors import DataError, SteepError
from steep.files import file_sha256, read_bytes, writing
from steep.models import checkpoints
from steep.report import charts, runs

pytestmark = pytest.mark.hostile


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


@pytest.fixture
def impatient() -> Iterator[None]:
    """Let nothing wait for a pipe that nobody writes to."""

    def stop(*_: object) -> None:
        raise AssertionError("it waits for the writer of a pipe")  # a TimeoutError is an OSError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "read",
    [
        file_sha256,
        read_bytes,
        stream.read,
        rows.read,
        charts.read,
        lambda path: runs.read([path]),
        lambda path: load("arrays", root=path.rename(path.with_suffix(".npz"))),
        lambda path: checkpoints.load(torch.nn.Linear(1, 1), path),
        lambda path: steep.resume(path, torch.nn.Linear(1, 1)),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, read: Callable[[Path], object], kind: str) -> None:
    """A pipe would wait for ever, and /dev/zero fill all memory."""
    path = tmp_path / "rows.jsonl"
    {"pipe": os.mkfifo, "device": lambda p: p.symlink_to("/dev/zero"), "folder": Path.mkdir}[kind](path)
    with pytest.raises((OSError, SteepError)):
        read(path)


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
