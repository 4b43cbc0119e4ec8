"""A bench that is killed and started again ends with the rows of one that was not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def run(folder: Path, *kinds: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(HERE / "killing.py"), str(folder), *kinds],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1] / "src")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What happened to each bench: one program plays all of them, beside one run that nothing interrupts."""
    kinds = ["one", "two", "share"] + (["ray"] if importlib.util.find_spec("ray") else [])
    return run(tmp_path_factory.mktemp("killing"), *kinds)


def test_killed_ten_times_and_resumed_equals_uninterrupted(seen: dict[str, dict[str, Any]]) -> None:
    one = seen["one"]
    assert one["killed"] == 10
    assert one["codes"] == [0]
    assert one["progress"] == sorted(one["progress"])  # no row is ever lost
    assert 0 < one["progress"][-1] < 40  # rows were kept over kills, and something was left to resume
    every_cell_once(one)


def test_two_processes_sharing_a_store_and_killed_equal_one_that_was_not(seen: dict[str, dict[str, Any]]) -> None:
    two = seen["two"]
    assert two["killed"] >= 10
    assert two["codes"] == [0, 0]
    assert two["progress"] == sorted(two["progress"])
    every_cell_once(two)


def test_two_processes_on_one_store_divide_the_work(seen: dict[str, dict[str, Any]]) -> None:
    share = seen["share"]
    assert sum(share["ran"]) == 40
    assert min(share["ran"]) > 0
    every_cell_once(share)


def test_ray_with_a_killed_worker_gives_the_rows_of_the_local_engine(seen: dict[str, dict[str, Any]]) -> None:
    pytest.importorskip("ray", reason="needs: pip install '.[ray]'")
    assert seen["ray"]["killed"] == 1
    assert seen["ray"]["failed"] == []
    every_cell_once(seen["ray"], rows=20)


def every_cell_once(bench: dict[str, Any], rows: int = 40) -> None:
    """Its rows are those of the bench that ran through, times aside; none ran twice."""
    assert (bench["cells"], bench["rows"], bench["different"], bench["equal"]) == (40, rows, rows, True)
