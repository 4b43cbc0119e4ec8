"""The runner of the paper's tables: its jobs fit together, and it goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import reproduce
from benchmarks.reproduce import JOBS, Job
from steep.bench.recipe import plan
from steep.bench.rows import read
from steep.cli import main

SMALL = Job("digits", "digits", limit=20, only=("method=source,bn", "shift=fog", "seed=0"), sets=("weights=untrained",))


def test_weights_are_made_before_the_grid_that_needs_them_and_no_cell_is_run_twice(tmp_path: Path) -> None:
    made: set[str] = set()
    keys: Counter[str] = Counter()
    for job in JOBS:
        if job.kind == "train":
            made.add(job.result(tmp_path, tmp_path).stem)
        if job.kind != "bench":
            continue
        grid = plan(job.recipe, only=job.only, sets=job.sets, seeds=job.seeds, limit=job.limit, require=False)
        assert {cell.weights for cell in grid.cells} <= made, job
        keys.update({f"{job.name} {cell.key()}" for cell in grid.cells})
    assert max(keys.values()) == 1


def test_a_command_is_one_that_steep_takes(tmp_path: Path) -> None:
    """Each kind once, as `steep` itself reads it: a misspelt option would end with 2."""
    for job in (SMALL, Job("w", "train-digits", "train")):
        assert main([*job.command(tmp_path, tmp_path, "cpu", epochs=20), "--dry-run"]) == 0
    levels = Job("c", "cifar10", "corrupt", severities=(1, 5)).command(tmp_path, tmp_path, "cpu")
    assert levels[levels.index("--out") + 1 :] == [str(tmp_path / "c"), "--severity", "1", "--severity", "5"]


def test_it_goes_on_where_it_stopped_and_a_job_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Job("broken", "table-3-pacs")  # its weights are not there
    words = ["reproduce", "--root", str(tmp_path), "--results", str(tmp_path), "--device", "cpu"]
    for jobs, more, message, rows in (
        ((SMALL,), ["--list"], "2 of 2 cells", 0),
        ((SMALL,), ["--minutes", "0"], "out of time", 0),
        ((broken, SMALL), [], "2 of 2 cells", 2),  # the next one runs
        ((SMALL,), [], "done", 2),
    ):
        monkeypatch.setattr(reproduce, "JOBS", jobs)
        monkeypatch.setattr(sys, "argv", [*words, *more])
        with pytest.raises(SystemExit, match="failed: broken") if broken in jobs else contextlib.nullcontext():
            reproduce.main()
        assert message in capsys.readouterr().out
        store = tmp_path / "digits.jsonl"
        assert (len(read(store)) if store.exists() else 0) == rows


def test_rows_count_where_their_weights_are_not(tmp_path: Path) -> None:
    job = Job("digits", "digits", limit=20, only=SMALL.only)
    assert job.left(tmp_path, tmp_path) == "2 of 2 cells; needs digits"
    (first, _) = plan("digits", only=SMALL.only, limit=20, sets=job.sets, root=tmp_path, require=False).cells
    made = replace(first, weights_sha256="a" * 64)
    row = {"schema": 1, "key": made.key(), "spec": made.to_json()}
    (tmp_path / "digits.jsonl").write_text(json.dumps(row) + "\n")
    assert job.left(tmp_path, tmp_path) == "1 of 2 cells; needs digits"


def test_weights_that_no_grid_is_waiting_for_are_not_made(tmp_path: Path) -> None:
    train = Job("w", "train-digits", "train")
    for weights, message in (("untrained", reproduce.UNUSED), ("digits", "to do")):
        grid = Job("digits", "digits", limit=20, only=SMALL.only, sets=(f"weights={weights}",))
        assert train.left(tmp_path, tmp_path, grid.cells(tmp_path, tmp_path)[0]) == message
