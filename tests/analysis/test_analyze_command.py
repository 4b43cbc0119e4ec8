"""`steep analyze` as a person calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import steep
from nets import images, net
from steep.analysis import energy
from steep.analysis.stream import Recorder
from steep.bench import cell as one
from steep.cli import main
from steep.report.charts import read

GRID = ["--recipe", "analyze-digits", "--set", "weights=untrained", "--limit", "40", "--device", "cpu"]
FEW = ["--only", "shift=fog,clean", "--only", "severity=0,5"]
TEA = ["--set", "tea.sgld_steps=1", "--set", "tea.chains=5", "--set", "tea.buffer_size=20"]


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return output.out, output.err


def test_rows_figure_and_numbers_are_written_and_the_second_run_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ["analyze", "energy-error", *GRID, *FEW, "--only", "method=source", "--out", str(tmp_path)]
    call += ["--format", "json,svg,png,pdf,html"]
    assert main(call) == 0
    out, _ = printed(capsys)
    assert "source: rank correlation of mean energy and mean loss" in out
    names = {f"energy-error.{form}" for form in ("json", "svg", "png", "pdf", "html")}
    names |= {"energy-error-groups.csv", "energy-error-shifts.csv", "rows.jsonl"}
    assert names <= {file.name for file in tmp_path.iterdir()}
    with (tmp_path / "energy-error-shifts.csv").open() as file:
        table = list(csv.DictReader(file))
    points = {row["shift"]: row for row in read(tmp_path) if row["part"] == "shift"}
    assert {row["shift"]: float(row["loss"]) for row in table} == {name: row["loss"] for name, row in points.items()}
    assert (tmp_path / "energy-error.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "energy-error.pdf").read_bytes().startswith(b"%PDF")
    assert b'src="http' not in (tmp_path / "energy-error.html").read_bytes()
    before = (tmp_path / "cells.jsonl").read_bytes()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("steep.analysis.cells._measure", never)
    assert main(call) == 0
    assert (tmp_path / "cells.jsonl").read_bytes() == before
    assert main([*call, "--set", "energy-error.width=2"]) == 2
    assert "Choose another --out" in printed(capsys)[1]


def test_bench_rows_are_analysed_where_they_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "bench")
    grid = ["--set", "weights=untrained", "--limit", "40", "--device", "cpu", *FEW, *TEA]
    assert main(["bench", "analyze-digits", "--store", store, *grid, "--only", "method=source,tea"]) == 0
    for name in ("calibration", "energy-severity"):
        out = tmp_path / name
        assert (
            main(["analyze", name, "--run", store, "--only", "method=tea,source", "--out", str(out), "--format", "svg"])
            == 0
        )
        assert {row["analysis"] for row in read(out)} == {name}
        assert (out / f"{name}.svg").is_file()
    assert main(["analyze", "energy-steps", "--run", store]) == 2
    assert "measures more than a bench stores" in printed(capsys)[1]
    assert main(["analyze", "calibration", "--run", store, "--only", "shift=snow"]) == 2
    assert "got none" in printed(capsys)[1]
    assert main(["analyze", "calibration", "--run", store, "--limit", "3"]) == 2


def test_a_cell_that_fails_leaves_the_rest_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = one.run

    def fails(cell: Any, *rest: Any) -> Any:
        if cell.method == "shot":
            raise ValueError("no labels here")
        return real(cell, *rest)

    monkeypatch.setattr(one, "run", fails)
    call = ["analyze", "calibration", *GRID, *FEW, *TEA, "--out", str(tmp_path), "--format", ""]
    assert main(call) == 1
    _, err = printed(capsys)
    assert "2 of 8 cells are missing" in err
    assert {row["label"] for row in read(tmp_path)} == {"source", "tent", "tea"}


def test_a_failing_measurement_of_every_cell_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("nothing works")

    monkeypatch.setattr(energy, "metrics", fails)
    call = ["analyze", "energy-error", *GRID, *FEW, "--only", "method=source", "--out", str(tmp_path)]
    assert main(call) == 2
    assert "none of 2 cells could be run" in printed(capsys)[1]
    assert not (tmp_path / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (["energy"], "unknown analysis 'energy': did you mean"),
        (["calibration", "--format", "gif"], "unknown format of a figure 'gif'"),
        (["samples", *GRID, "--set", "samples.colour=3"], "unknown key of options of samples 'colour'"),
        (["stream"], "expected a FILE that a Recorder wrote"),
        (["calibration", "file.jsonl"], "--run file.jsonl"),
        (["stream", "nowhere.jsonl"], "expected a file that"),
    ],
)
def test_slips_are_answered_with_what_would_have_worked(
    call: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["analyze", *call, "--out", str(tmp_path / "out")]) == 2
    assert message in printed(capsys)[1]
    assert not (tmp_path / "out").exists()


def test_a_recorded_stream_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as record:
        adapter = steep.adapt(net(), "tent", callbacks=[record])
        for seed in range(5):
            adapter(images(20, seed))
    assert main(["analyze", "stream", str(path), "--out", str(tmp_path / "out"), "--format", "json"]) == 0
    assert "tent: 5 batches, 0 steps undone" in printed(capsys)[0]
    assert json.loads((tmp_path / "out" / "stream.json").read_text())["title"]["text"] == "One run, batch by batch"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert main(["analyze", "stream", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "expected at least one batch" in printed(capsys)[1]
