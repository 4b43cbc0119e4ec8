"""`steep corrupt` as a real process: killed, interrupted, out of space, started twice."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_sets import clean, everything, expected, stubbed

from steep import corruptions
from steep.cli import main
from steep.data import write
from steep.errors import DataError


class Run:
    """`steep corrupt` as a process of its own that really can be killed (forked, so that torch is loaded already)."""

    def __init__(self, folder: Path, out: str, *, pause: float = 0.0, limit: int = 0) -> None:
        self.log, self.printed = folder / f"{out}.log", folder / f"{out}.printed"
        np.savez(folder / "set.npz", images=clean().images, labels=clean().labels)
        arguments = ["corrupt", "arrays", "--root", str(folder / "set.npz"), "--out", str(folder / out)]
        self.process = multiprocessing.get_context("fork").Process(
            target=self._child, args=([*arguments, "--only", "fog,snow"], pause, limit)
        )
        self.process.start()

    def _child(self, arguments: list[str], pause: float, limit: int) -> None:
        def slow(images: np.ndarray, name: str, severity: int, seed: int, first: int, table: str | None) -> np.ndarray:
            time.sleep(pause)
            with self.log.open("a") as log:
                log.write(f"{name} {severity} {first}\n")
            return stubbed(images, name, severity, seed, first)

        corruptions.corrupt = slow  # type: ignore[assignment]
        with self.printed.open("w") as text:
            os.dup2(text.fileno(), 2)
            sys.stderr = text
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            code = main(arguments)
        os._exit(code)

    def made(self, pieces: int) -> None:
        """Wait until so many pieces are made."""
        deadline = time.monotonic() + 60
        while not self.log.exists() or len(self.log.read_text().splitlines()) < pieces:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def end(self) -> tuple[int | None, str]:
        self.process.join(60)
        return self.process.exitcode, self.printed.read_text()


killable = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@killable
@pytest.mark.usefixtures("small_pieces")
def test_kill_9_in_the_middle_and_run_again_is_the_same_to_the_byte(tmp_path: Path) -> None:
    killed = Run(tmp_path, "out", pause=0.05)
    killed.made(20)  # 15 pieces of fog, then the middle of snow
    killed.process.kill()
    assert killed.end()[0] == -9
    there = everything(tmp_path / "out")
    assert "fog.npy" in there
    assert "snow.npy" not in there
    code, text = Run(tmp_path, "out").end()
    assert code == 0, text
    assert "1 made, 1 already there" in text
    assert Run(tmp_path, "whole").end()[0] == 0
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "snow.npy"), expected(clean(), "snow"))
    calls = (tmp_path / "out.log").read_text().splitlines()
    assert 30 <= len(calls) <= 31  # at most the piece in hand was made twice


@killable
@pytest.mark.usefixtures("small_pieces")
def test_ctrl_c_says_what_is_stored(tmp_path: Path) -> None:
    stopped = Run(tmp_path, "out", pause=0.05)
    stopped.made(3)
    os.kill(stopped.process.pid or 0, signal.SIGINT)
    code, text = stopped.end()
    assert code == 130
    assert "the same command goes on from there" in text
    assert "Traceback" not in text


@killable
@pytest.mark.usefixtures("small_pieces")
def test_a_disk_that_really_is_too_small(tmp_path: Path) -> None:
    """The system itself refuses to let a file grow beyond 4,000 bytes; fog.npy needs 11,648."""
    code, text = Run(tmp_path, "out", limit=4000).end()
    assert code == 2
    assert "fog.npy: the disk is full" in text
    assert "Traceback" not in text
    assert not (tmp_path / "out" / "fog.npy").exists()
    assert Run(tmp_path, "out").end()[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "fog.npy"), expected(clean(), "fog"))


@killable
@pytest.mark.usefixtures("small_pieces")
def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Run(tmp_path, "out", pause=0.1)
    first.made(2)
    with pytest.raises(DataError, match="another run is writing here"):
        write(clean(), tmp_path / "out", only=["fog"])
    assert first.end()[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "fog.npy"), expected(clean(), "fog"))
