"""Runs as people have them: empty, half done, mixed, copied, of one name; and analyses beside them."""

from __future__ import annotations

import base64
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_report_page import Page

from made_rows import row
from steep.bench.rows import StoreError, encode
from steep.cli import main
from steep.errors import InputError
from steep.report import page as page_module
from steep.report.charts.samples import grids
from steep.report.page import html
from steep.report.runs import read
from steep.report.tables import build

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
    )
).decode()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "vega", lambda: "/* vega */")


def run(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    return folder


def page_of(*folders: Path) -> Page:
    runs = read(folders)
    tables = build(runs.rows) if runs.rows else []
    return Page(html(tables, "t", sources=runs.sources, analyses=runs.analyses, notes=runs.notes))


def test_an_empty_run_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = run(tmp_path / "nothing")
    for form in ("html", "terminal"):
        assert main(["report", str(empty), "--format", form]) == 2
        assert "expected at least one row, got none in nothing" in capsys.readouterr().err
    with pytest.raises(StoreError, match="no such store"):
        read([tmp_path / "never"])


def test_an_empty_run_beside_a_full_one_is_said(tmp_path: Path) -> None:
    page = page_of(run(tmp_path / "nothing"), run(tmp_path / "full", row("tea", "fog", 0.8)))
    assert "nothing has no rows" in page.text
    assert page.tables["board"][1][:2] == ["tea", "80.00"]


def test_half_a_grid_shows_gaps_and_no_zero(tmp_path: Path) -> None:
    rows = [row("source", s, 0.5, level) for s in ("fog", "snow") for level in (1, 5)]
    rows += [row("tea", "fog", 0.9, 5), row("tea", "fog", 0.95, 1), row("tea", "snow", 0.85, 1)]
    page = page_of(run(tmp_path / "half", *rows))
    shown = json.loads(page.scripts["heat-1-data"])
    assert shown["views"] == ["1", "5", "all"]
    tea = [line[0] for line in page.tables["heat"][1:]].index("tea")
    first, worst, every = ([cell[0] for cell in view[tea]] for view in shown["modes"]["accuracy"])
    assert first == ["85.0", "95.0", "90.0"]  # snow, fog, mean
    assert worst == ["–", "90.0", "–"]
    assert every == ["–", "92.5", "–"]
    assert shown["modes"]["accuracy"][1][tea][0] == ["–", "gap", "not run"]
    assert "No method" not in page.text  # the source model is whole, and leads for now
    assert "source leads" in page.text


def test_no_average_is_said_where_nothing_is_whole(tmp_path: Path) -> None:
    page = page_of(run(tmp_path / "a", row("tea", "fog", 0.9), row("tent", "snow", 0.5)))
    assert "No method has run on every shift yet" in page.text


def test_rows_of_mixed_versions_are_said(tmp_path: Path) -> None:
    old, new = row("source", "fog", 0.5), row("tea", "fog", 0.8)
    new["env"] = {"device": "cpu", "commit": "d" * 40, "versions": {"steep": "2.0"}}
    page = page_of(run(tmp_path / "mixed", old, new))
    assert "rows of several versions of steep stand side by side" in page.text
    assert "cccccccccccc, dddddddddddd" in page.text
    assert "several versions" not in page_of(run(tmp_path / "same", old, row("tea", "fog", 0.8))).text
    newer = run(tmp_path / "newer", {**old, "schema": 99})
    with pytest.raises(StoreError, match="newer steep"):
        read([newer])


def test_nan_metrics_are_shown_as_such_and_drawn_nowhere(tmp_path: Path) -> None:
    bad = {"energy_before": -1.0, "energy_after": math.nan, "nonfinite": 3, "calibration": None, "reliability": None}
    good = {"energy_before": -1.0, "energy_after": -2.0}
    rows = [row("source", "fog", 0.5, **good), row("tea", "fog", math.nan, **bad), row("bn", "fog", 0.6, **good)]
    page = page_of(run(tmp_path / "nan", *rows))
    board = {line[0]: line[1] for line in page.tables["board"]}
    assert (board["tea"], board["source"]) == ("NaN", "50.00")
    specs = json.loads(page.scripts["charts"])
    assert specs
    assert "NaN" not in page.scripts["charts"]
    assert '"tea"' not in page.scripts["charts"].replace('"tea","gib"', "")  # no point without numbers
    assert "bn leads with 60.00 %" in page.text


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    first = run(tmp_path / "a" / "night", row("source", "fog", 0.5), row("tea", "fog", 0.8, finished="2026-01-01"))
    second = run(tmp_path / "b" / "night", row("tea", "fog", 0.7, finished="2026-02-02"))
    page = page_of(first, second)
    assert {line[0] for line in page.tables["other"]} >= {"a/night", "b/night"}
    assert "1 cells were run more than once (1 of them with another accuracy); the latest counts" in page.text
    assert page.tables["board"][1][:2] == ["tea", "70.00"]


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    folder = run(tmp_path / "night", row("tea", "fog", 0.8))
    runs = read([folder, folder / "rows.jsonl", tmp_path / "x" / ".." / "night"])
    assert len(runs.rows) == 1
    assert runs.notes == ("night was named more than once; it counts once",) * 2


def test_a_run_copied_from_another_machine_looks_the_same(stored: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere" / stored.name
    there.parent.mkdir()
    shutil.copy(stored, there)
    made = []
    for path in (stored, there):
        runs = read([path])
        made.append(html(build(runs.rows), runs.sources[0].name, sources=runs.sources))
    assert made[0] == made[1]
    assert str(tmp_path) not in made[1]
    assert str(stored.parent) not in made[0]


def flat(**values: Any) -> dict[str, Any]:
    about = {"analysis": "calibration", "version": 1, "data": "digits-c", "model": "wrn-10-1", "label": "tea"}
    about |= {"shift": "fog", "shifts": 1, "seeds": 1, "method": "tea", "device": "cpu", "commit": "c" * 40}
    return {**about, **values}


def analysis(folder: Path, *rows: dict[str, Any]) -> None:
    run(folder / "analysis" / "one", *rows)


def test_analyses_beside_a_run_are_drawn(tmp_path: Path) -> None:
    folder = run(tmp_path / "night", row("tea", "fog", 0.8))
    errors = {"n": 10, "accuracy": 0.5, "ece": 0.25, "mce": 0.3, "brier": 0.4, "nll": 1.0, "nonfinite": 0}
    one = {"bin": 7, "low": 0.7, "high": 0.8, "n": 10, "confidence": 0.75, "accuracy": 0.5}
    analysis(folder, flat(part="errors", **errors), flat(part="bin", **one))
    page = page_of(folder)
    assert "Does confidence mean what it says?" in page.text
    assert "25" in page.scripts["charts"]  # the gap, in points
    alone = run(tmp_path / "alone")
    (alone / "rows.jsonl").unlink()
    analysis(alone, flat(part="errors", **errors), flat(part="bin", **one))
    assert "Does confidence mean what it says?" in page_of(alone).text


def test_one_analysis_in_two_runs_is_two_figures(tmp_path: Path) -> None:
    errors = {"n": 10, "accuracy": 0.5, "mce": 0.3, "brier": 0.4, "nll": 1.0, "nonfinite": 0}
    folders = [run(tmp_path / name, flat(part="errors", ece=ece, **errors)) for name, ece in (("a", 0.25), ("b", 0.5))]
    page = page_of(*folders)
    specs = json.loads(page.scripts["charts"])
    assert ["25.0" in json.dumps(spec) for spec in specs.values()] == [True, False]
    assert ["50.0" in json.dumps(spec) for spec in specs.values()] == [False, True]
    assert "run a · digits-c, wrn-10-1" in page.text
    assert "run b · digits-c, wrn-10-1" in page.text
    more = {"analysis": "samples", "part": "picture", "kind": "real", "png": PNG, "severity": 5}
    folders = [run(tmp_path / name, flat(**more), flat(**more | {"part": "distance"})) for name in ("c", "d")]
    assert [where for where, _ in grids(read(folders).analyses)[0]] == [f"digits-c, fog 5, run {n}" for n in "cd"]


def test_what_cannot_be_shown_says_what_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run(tmp_path / "a", flat(part="errors")))]) == 2
    assert "got others only. Choose --format html" in capsys.readouterr().err
    recorded = run(tmp_path / "b", flat(analysis="stream", part="start"), {"part": "batch"})
    assert main(["report", str(recorded), "--format", "html"]) == 2
    assert "Run: steep analyze stream rows.jsonl --out FOLDER" in capsys.readouterr().err


def test_a_page_of_analyses_alone_says_what_was_run(tmp_path: Path) -> None:
    errors = {"n": 10, "accuracy": 0.5, "ece": 0.2, "mce": 0.3, "brier": 0.4, "nll": 1.0, "nonfinite": 0}
    page = page_of(run(tmp_path / "a", flat(part="errors", when="2026-01-02T03:04:05", steep="9.9", **errors)))
    for words in ("calibration", "digits-c", "wrn-10-1", "tea", "2026-01-02 03:04", "cpu", "c" * 12, "steep 9.9"):
        assert words in page.text


def test_sample_grids_are_shown_and_only_pictures(tmp_path: Path) -> None:
    more = {"part": "picture", "kind": "samples", "severity": 5}
    rows = [flat(analysis="samples", png=png, **more) for png in (PNG, "javascript:alert(1)", PNG + '"onload="', "")]
    rows.append(flat(analysis="samples", part="distance", severity=5, mean_distance=0.25, covariance_distance=0.5))
    page = Page(html([], analyses=rows))
    assert "tea: samples. Distance to the test set: mean 0.250, covariance 0.5000" in page.text
    assert [value for name, value in page.attributes if name == "src"] == [f"data:image/png;base64,{PNG}"]
    assert [value for name, value in page.attributes if name == "alt"] == ["grid of pictures, tea: samples"]
    assert "3 pictures are not shown" in page.text
    assert grids([flat(part="errors")]) == ([], 0)


def test_an_analysis_nobody_draws_is_said_and_a_broken_one_refused(tmp_path: Path) -> None:
    folder = run(tmp_path / "night", row("tea", "fog", 0.8))
    analysis(folder, flat(analysis="tea-leaves<b>"))
    page = page_of(folder)
    assert "No chart here for: tea-leaves<b>." in page.text
    assert "b" not in page.tags
    analysis(folder, flat(part="errors", n=1))
    with pytest.raises(InputError, match=r"calibration.*lack"):
        page_of(folder)


def test_rows_of_a_benchmark_are_left_out_with_a_word(tmp_path: Path) -> None:
    speed = tmp_path / "speed.jsonl"
    speed.write_text('{"benchmark": "speed", "images_per_s": 10.0}\n', encoding="utf-8")
    runs = read([Path(__file__).parents[2] / "results" / "cifar10-c-severity-5.jsonl", speed])
    assert len(runs.rows) == 150
    assert any("speed" in note and "left out" in note for note in runs.notes)
    with pytest.raises(InputError, match="expected at least one row"):
        read([speed])
