"""`torchrun -m steep bench`: the rows of two ranks are those of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from steep.bench import local
from steep.bench.recipe import plan
from steep.bench.rows import read, stable
from steep.bench.store import Store

GRID = {
    "sets": ["weights=untrained", "batch_size=25", "tea.sgld_steps=2", "tea.buffer_size=64"],
    "only": ["method=source,tent,eata,tea", "setting=paper", "shift=fog"],
}


def torchrun(store: Path) -> str:
    options = [f"--set={text}" for text in GRID["sets"]] + [f"--only={text}" for text in GRID["only"]]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "steep"]
    bench = ["bench", "digits", "--store", str(store), "--seeds=0", "--limit=60", "--device=cpu", *options]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": source}
    done = subprocess.run([*start, *bench], env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def near(got, expected) -> None:
    """The same nested data, numbers to rounding."""
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for name in expected:
            near(got[name], expected[name])
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for pair in zip(got, expected, strict=True):
            near(*pair)
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert got == expected


def test_two_ranks_write_the_rows_of_one_process(tmp_path: Path) -> None:
    printed = torchrun(tmp_path / "two")
    assert printed.count("4 cells run, 0 there already, 0 failed") == 1  # one rank speaks
    with Store(tmp_path / "one") as store:
        local.run(plan("digits", **GRID, seeds="0", limit=60).cells, store)
    together, alone = ({row["key"]: row for row in read(tmp_path / name)} for name in ("two", "one"))
    assert len(alone) == 4
    assert {row["env"]["ranks"] for row in together.values()} == {2}
    near({key: stable(row) for key, row in together.items()}, {key: stable(row) for key, row in alone.items()})
