"""A bench that is killed and started again ends with the rows of one that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def told(kind: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), kind, str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_killed_ten_times_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    found = told("one", tmp_path)
    assert found["killed"] == 10
    assert found["codes"] == [0]
    assert found["progress"] == sorted(found["progress"])  # no row is ever lost
    assert 0 < found["progress"][-1] < 40  # rows were kept over kills, and something was left to resume
    assert (found["cells"], found["rows"], found["equal"]) == (40, 40, True)  # every cell once, times aside


def test_two_processes_sharing_a_store_and_killed_equal_one_that_was_not(tmp_path: Path) -> None:
    found = told("two", tmp_path)
    assert found["killed"] >= 10
    assert found["codes"] == [0, 0]
    assert found["progress"] == sorted(found["progress"])
    assert (found["cells"], found["rows"], found["equal"]) == (40, 40, True)  # none ran twice


def test_two_processes_on_one_store_divide_the_work(tmp_path: Path) -> None:
    found = told("share", tmp_path)
    assert sum(found["ran"]) == 40
    assert min(found["ran"]) > 0
    assert (found["cells"], found["rows"], found["equal"]) == (40, 40, True)


def test_ray_with_a_killed_worker_gives_the_rows_of_the_local_engine(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs: pip install '.[ray]'")
    found = told("ray", tmp_path)
    assert found["killed"] == 1
    assert found["failed"] == []
    assert (found["cells"], found["rows"], found["equal"]) == (40, 40, True)
