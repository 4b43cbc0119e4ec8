"""Charts of analyses: the numbers drawn are those of the rows, summed by numpy; what is missing is said."""

from __future__ import annotations

import ast
import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legible import LEAST, smallest
from steep.analysis.calibration import Calibration
from steep.errors import InputError, UnknownNameError
from steep.methods import METHODS
from steep.report import charts
from steep.report.charts import CHARTS, COLOURS, TABLES, figures, read
from steep.report.charts.style import titled
from steep.report.export import formats, write_analysis

SHIFTS = ("gaussian_noise", "fog", "pixelate")
DRAW = np.random.default_rng(0)


def row(analysis: str, **values: Any) -> dict[str, Any]:
    about = {"data": "cifar10-c", "source": "", "model": "wrn-40-2", "weights": "w", "severity": 5, "seed": 0}
    made = {"label": "tea", "method": "tea", "commit": "c0ffee", "device": "cpu", "steep": "1", "when": "2024-06-17"}
    return {"analysis": analysis, "version": 1, **about, **made, **values}


def energy_error() -> list[dict[str, Any]]:
    rows = []
    for shift in (*SHIFTS, "clean"):
        for severity in (1, 5) if shift != "clean" else (0,):
            where = {"shift": shift, "severity": severity, "label": "source"}
            numbers = {"energy": -8 + DRAW.normal(), "loss": DRAW.random(), "error": 0.3, "n": 50}
            rows.append(row("energy-error", part="shift", **where, **numbers))
            for k in range(-30, 0):
                n = int(DRAW.integers(1, 9))
                group = {"energy_low": k / 2, "energy_high": (k + 1) / 2, "n": n, "wrong": int(DRAW.integers(0, n + 1))}
                rows.append(row("energy-error", part="group", **where, **group))
    return rows


def energy_steps() -> list[dict[str, Any]]:
    rows = []
    for shift in SHIFTS:
        for label, last in (("source", 0), ("tea", 3)):
            for step in range(last + 1):
                numbers = {"energy": DRAW.normal(), "loss": DRAW.random(), "accuracy": DRAW.random(), "n": 9}
                rows.append(row("energy-steps", part="step", shift=shift, label=label, step=step, **numbers))
    return rows


def energy_severity() -> list[dict[str, Any]]:
    rows = []
    for shift in SHIFTS:
        for severity in (1, 2, 3):
            for seed in (0, 1):
                numbers = {"energy_reduction": DRAW.normal(), "gain": DRAW.normal() / 10}
                both = {"accuracy": 0.5, "accuracy_source": 0.5 - numbers["gain"], "n": 9}
                where = {"shift": shift, "severity": severity, "seed": seed}
                rows.append(row("energy-severity", part="point", **where, **numbers, **both))
    ranks = {"part": "correlation", "spearman": 0.5, "pairs": 6}
    return rows + [row("energy-severity", shift=shift, **ranks) for shift in ("all", *SHIFTS)]


def calibration() -> list[dict[str, Any]]:
    rows = []
    for label in ("source", "tea"):
        errors = {"n": 100, "accuracy": 0.5, "ece": 0.1, "mce": 0.2, "brier": 0.3, "nll": 0.4, "nonfinite": 0}
        rows.append(row("calibration", part="errors", label=label, shift="clean", shifts=1, seeds=1, **errors))
        for k in range(10):
            means = (
                {"confidence": (k + 0.5) / 10, "accuracy": DRAW.random()}
                if k
                else {"confidence": None, "accuracy": None}
            )
            numbers = {"bin": k, "low": k / 10, "high": (k + 1) / 10, "n": 10 * bool(k), **means}
            rows.append(row("calibration", part="bin", label=label, shift="clean", **numbers))
    return rows


def sensitivity() -> list[dict[str, Any]]:
    rows = []
    for shift in SHIFTS:
        rows.append(row("sensitivity", part="source", label="source", shift=shift, accuracy=0.2, n=9))
        for name, values in {"sgld_rate": (0.001, 0.1, 0.4), "batch_size": (50, 200)}.items():
            for value in values:
                for seed in (0, 1):
                    about = {"parameter": name, "value": value, "usual": value in (0.1, 200), "seed": seed}
                    rows.append(row("sensitivity", part="point", shift=shift, accuracy=DRAW.random(), n=9, **about))
    return rows


def samples() -> list[dict[str, Any]]:
    rows = []
    for label in ("real", "source", "tea"):
        numbers = {"mean_distance": DRAW.random(), "covariance_distance": DRAW.random()}
        rows.append(row("samples", part="distance", shift="clean", label=label, of="samples", n=100, **numbers))
        if label != "real":
            about = {"part": "chain", "shift": "clean", "label": label, "energy": -1.0}
            rows += [row("samples", step=step, **about, **numbers) for step in (0, 1, 10)]
    for batch in (1, 2, 3):
        numbers = {
            "travelled": batch / 10,
            "moved": 0.1,
            "chains": 50,
            "mean_distance": 0.1,
            "covariance_distance": 0.1,
        }
        rows.append(row("samples", part="buffer", shift="clean", batch=batch, **numbers))
    rows.append(row("samples", part="picture", shift="clean", kind="samples", file="a.png", png="", columns=3))
    return rows


def stream(n: int = 30) -> list[dict[str, Any]]:
    rows = []
    for i in range(n):
        numbers = {name: float(DRAW.normal()) for name in ("energy_before", "energy_after", "energy_samples", "loss")}
        about = {"batch": i + 1, "n": 20, "seconds": float(i), "undone": int(i >= 7), "note": None, "used": 20}
        classes = DRAW.multinomial(20, [0.1] * 10).tolist()
        skipped = "the loss is not finite" if i == 7 else None
        rows.append(row("stream", part="batch", entropy=0.5, classes=classes, skipped=skipped, **about, **numbers))
    return rows


ROWS = {
    "energy-error": energy_error(),
    "energy-steps": energy_steps(),
    "energy-severity": energy_severity(),
    "calibration": calibration(),
    "sensitivity": sensitivity(),
    "samples": samples(),
    "stream": stream(),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_is_drawn_is_what_the_tables_say(name: str) -> None:
    spec = CHARTS[name](ROWS[name]).to_dict()  # altair checks it against Vega-Lite's schema
    known = {json.dumps(record) for table in TABLES[name](ROWS[name]).values() for record in table}
    ends = {json.dumps({"a": a, "b": a}) for a in (0, 100)}  # of the diagonal
    shown = [json.dumps(record) for values in spec["datasets"].values() for record in values]
    assert shown
    assert set(shown) <= known | ends
    assert spec["description"]
    assert spec["title"]["text"]
    assert any("cpu" in line and "c0ffee" in line for line in spec["title"]["subtitle"])


@pytest.mark.parametrize("name", ROWS)
def test_letters_can_be_read_on_a_phone(name: str) -> None:
    assert smallest(titled(CHARTS[name](ROWS[name]).to_dict(), "a title")) >= LEAST


def axes(spec: Any) -> list[dict[str, Any]]:
    """Every x and y of a chart and of the charts inside it."""
    if isinstance(spec, list):
        return [axis for part in spec for axis in axes(part)]
    if not isinstance(spec, dict):
        return []
    inside = [axis for name, part in spec.items() if name != "datasets" for axis in axes(part)]
    return inside + [spec["encoding"][name] for name in ("x", "y") if name in spec.get("encoding", {})]


@pytest.mark.parametrize("name", ROWS)
def test_axes_begin_at_zero_or_the_chart_says_which_do_not(name: str) -> None:
    """An energy has no zero to begin at; what hyper-parameters change would not be seen from a zero."""
    what = {"energy-error": "energy", "energy-steps": "energy", "stream": "energy", "sensitivity": "accuracy"}.get(name)
    spec = CHARTS[name](ROWS[name]).to_dict()
    cut = [axis["title"] for axis in axes(spec) if (axis.get("scale") or {}).get("zero") is False]
    assert bool(cut) == (what is not None)
    assert all(what and what in title for title in cut)
    assert (f"the axes of {what} do not begin at zero" in " ".join(spec["title"]["subtitle"])) == bool(cut)


def test_energy_groups_are_merged_without_losing_an_image() -> None:
    rows = ROWS["energy-error"]
    groups = [r for r in rows if r["part"] == "group"]
    drawn = TABLES["energy-error"](rows)["groups"]
    assert len(drawn) <= 12
    low = np.array([r["energy_low"] for r in groups])
    n, wrong = (np.array([r[name] for r in groups]) for name in ("n", "wrong"))
    assert sum(g["n"] for g in drawn) == n.sum()
    for group in drawn:
        inside = (low >= group["energy_low"]) & (low < group["energy_high"])
        assert group["n"] == n[inside].sum()
        assert group["error_percent"] == pytest.approx(100 * wrong[inside].sum() / n[inside].sum())


def test_steps_are_means_over_shifts() -> None:
    rows = ROWS["energy-steps"]
    drawn = TABLES["energy-steps"](rows)["mean"]
    assert [(r["label"], r["step"]) for r in drawn] == [("source", 0), *(("tea", step) for step in range(4))]
    for point in drawn:
        alike = [r for r in rows if (r["label"], r["step"]) == (point["label"], point["step"])]
        assert point["energy"] == pytest.approx(np.mean([r["energy"] for r in alike]))
        assert point["accuracy_percent"] == pytest.approx(100 * np.mean([r["accuracy"] for r in alike]))
    half = [r for r in rows if not (r["shift"] == "fog" and r["step"] == 3)]
    assert [r["step"] for r in TABLES["energy-steps"](half)["mean"] if r["label"] == "tea"] == [0, 1, 2]


def test_the_bars_of_samples_are_means_over_seeds_not_their_sum() -> None:
    tea = [r for r in ROWS["samples"] if (r["label"], r["part"]) == ("tea", "distance")]
    more = [{**r, "seed": 1, "mean_distance": r["mean_distance"] + 0.5} for r in tea]
    (bar,) = (r for r in TABLES["samples"]([*ROWS["samples"], *more])["distance"] if r["label"] == "tea")
    assert bar["mean_distance"] == pytest.approx(tea[0]["mean_distance"] + 0.25)
    assert (bar["covariance_distance"], bar["seeds"]) == (pytest.approx(tea[0]["covariance_distance"]), 2)


def test_severity_is_a_mean_over_seeds_then_over_corruptions() -> None:
    rows = ROWS["energy-severity"]
    drawn = TABLES["energy-severity"](rows)
    gain = np.array([r["gain"] for r in rows if r["part"] == "point"]).reshape(3, 3, 2)  # shift, severity, seed
    fall = np.array([r["energy_reduction"] for r in rows if r["part"] == "point"]).reshape(3, 3, 2)
    assert [p["gain_points"] for p in drawn["points"]] == pytest.approx(list(100 * gain.mean(2).ravel()))
    assert [p["gain_points"] for p in drawn["overall"]] == pytest.approx(list(100 * gain.mean((0, 2))))
    assert [p["energy_reduction"] for p in drawn["overall"]] == pytest.approx(list(fall.mean((0, 2))))


def test_half_a_grid_has_no_mean_and_is_said() -> None:
    half = [r for r in ROWS["energy-severity"] if not (r["shift"] == "fog" and r["severity"] == 2)]
    assert [p["severity"] for p in TABLES["energy-severity"](half)["overall"]] == [1, 3]
    assert any("1 of 9 corruptions × severities are missing" in line for line in subtitle("energy-severity", half))
    lone = [{**r, "gain": None} if r.get("seed") == 1 and r["part"] == "point" else r for r in ROWS["energy-severity"]]
    assert any(line.startswith("9 of 18 runs lack a source model") for line in subtitle("energy-severity", lone))
    with pytest.raises(InputError, match="none of 18 runs has a source model"):
        CHARTS["energy-severity"]([{**r, "gain": None} for r in ROWS["energy-severity"]])
    short = [r for r in ROWS["sensitivity"] if not (r["shift"] == "fog" and r.get("value") == 0.4)]
    assert {r["value"] for r in TABLES["sensitivity"](short)["mean"]} == {0.001, 0.1, 50, 200}
    assert "not run for every corruption, so without a mean: SGLD rate 0.4" in subtitle("sensitivity", short)


def subtitle(name: str, rows: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = CHARTS[name](rows).to_dict()["title"]["subtitle"]
    return lines


def test_bins_and_gaps_are_in_percent_and_empty_bins_are_not_zero() -> None:
    rows = ROWS["calibration"]
    drawn = [r for r in TABLES["calibration"](rows)["bins"] if r["label"] == "tea"]
    assert len(drawn) == 9
    bins = [r for r in rows if r["part"] == "bin" and r["label"] == "tea" and r["n"]]
    gaps = 100 * (np.array([r["confidence"] for r in bins]) - np.array([r["accuracy"] for r in bins]))
    assert [r["gap_points"] for r in drawn] == pytest.approx(list(gaps))
    broken = [r for r in rows if r["part"] == "errors"]
    broken[1] = {**broken[1], "ece": math.nan, "mce": math.nan, "nonfinite": 7}
    text = json.dumps(CHARTS["calibration"](broken).to_dict())
    assert "ECE NaN" in text
    assert "7 answers not finite" in text


def test_calibration_on_other_sets_is_no_comparison() -> None:
    rows = ROWS["calibration"]
    warned = "methods were not run on the same sets: do not compare them"
    assert warned not in json.dumps(CHARTS["calibration"](rows).to_dict())
    assert warned not in Calibration().summary(rows)
    other = [{**r, "shift": "fog"} if r["label"] == "tea" else r for r in rows]  # as many sets, and not the same
    assert warned in json.dumps(CHARTS["calibration"](other).to_dict())
    assert Calibration().summary(other)[0] == warned


def test_sensitivity_is_a_mean_over_seeds_then_over_corruptions() -> None:
    rows = ROWS["sensitivity"]
    for point in TABLES["sensitivity"](rows)["mean"]:
        alike = [
            r["accuracy"] for r in rows if r.get("parameter") == point["parameter"] and r["value"] == point["value"]
        ]
        assert point["accuracy_percent"] == pytest.approx(100 * np.mean(alike))


def test_a_long_stream_is_drawn_as_means_of_neighbours() -> None:
    rows = stream(1001)
    tables = TABLES["stream"](rows)
    width = 6  # 1001 batches in at most 200 points
    energy = np.array([r["energy_before"] for r in rows])
    means = [energy[i : i + width].mean() for i in range(0, 1001, width)]
    drawn = [r["value"] for r in tables["numbers"] if r["of"] == "test images, before"]
    assert drawn == pytest.approx(means)
    counts = np.array([r["classes"] for r in rows])
    first = [r["share_percent"] for r in tables["classes"] if r["batch"] == 1]
    assert first == pytest.approx(list(100 * counts[:width].sum(0) / counts[:width].sum()))
    assert [(r["batch"], r["why"]) for r in tables["events"]] == [(8, "the loss is not finite")]


def test_a_stream_with_the_source_model_beside_has_two_more_panels() -> None:
    rows = [dict(each) for each in stream(20)]
    for each in rows[::10]:
        each |= {"disagreement": 0.25, "source_classes": [20] + [0] * 9}
    rows[4]["note"] = "recovered the source model: the answers use 1.2 classes"
    tables = TABLES["stream"](rows)
    assert [r["value"] for r in tables["numbers"] if r["of"] == "unlike the source model"] == [0.25, 0.25]
    source = [r["share_percent"] for r in tables["classes"] if r["of"] == "source_classes"]
    assert source == [100, *[0] * 9] * 2
    assert [r["batch"] for r in tables["events"]] == [5, 8]
    assert (
        len(CHARTS["stream"](rows).to_dict()["vconcat"]) == len(CHARTS["stream"](stream(20)).to_dict()["vconcat"]) + 2
    )


def test_an_estimated_gain_has_a_panel_with_its_interval() -> None:
    rows = [dict(each) for each in stream(20)]
    for each in rows[::10]:
        each |= {"gain": 2.0, "gain_low": -1.0, "gain_high": 5.0}
    tables, panels = TABLES["stream"](rows), CHARTS["stream"](rows).to_dict()["vconcat"]
    drawn = {kind: [r["value"] for r in tables["numbers"] if r["of"] == kind] for kind in ("at least", "at most")}
    assert drawn == {"at least": [-1, -1], "at most": [5, 5]}
    assert len(panels) == len(CHARTS["stream"](stream(20)).to_dict()["vconcat"]) + 1
    assert any("gain (points)" in json.dumps(panel) for panel in panels)


def test_batches_that_wait_for_more_images_are_no_events() -> None:
    rows = [{**each, "skipped": "waiting", "waiting": True} for each in stream(5)] + stream(8)[5:]
    assert [r["batch"] for r in TABLES["stream"](rows)["events"]] == [8]


@pytest.mark.parametrize("name", ROWS)
def test_no_rows_and_rows_of_another_analysis_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"chart {name}: expected at least one row, got none"):
        CHARTS[name]([])
    other = next(other for other in ROWS if other != name)
    with pytest.raises(InputError, match=f"expected rows of {name}"):
        CHARTS[name](ROWS[name] + ROWS[other])


@pytest.mark.parametrize("name", ROWS)
def test_nan_is_left_out_and_said_not_drawn_as_a_number(name: str) -> None:
    numbers = ("loss", "energy", "accuracy", "gain", "mean_distance", "energy_before", "ece")
    rows = [dict(r) for r in ROWS[name]]
    part = {
        "energy-error": "shift",
        "energy-steps": "step",
        "samples": "chain",
        "stream": "batch",
        "calibration": "errors",
    }
    hit = next(r for r in rows if r.get("part") == part.get(name, "point"))
    hit |= {name: math.nan for name in numbers if name in hit}
    spec = CHARTS[name](rows).to_dict()
    json.dumps(spec, allow_nan=False)
    text = " ".join(spec["title"]["subtitle"])
    if name not in ("stream", "calibration"):  # a stream's line has a gap, a panel of calibration says it itself
        assert "not finite" in text


def test_several_models_are_several_figures() -> None:
    other = [{**r, "model": "wrn-28-10"} for r in ROWS["calibration"]]
    parted = figures(ROWS["calibration"] + other)
    assert list(parted) == ["calibration cifar10-c wrn-40-2", "calibration cifar10-c wrn-28-10"]
    spec = CHARTS["calibration"](ROWS["calibration"] + other).to_dict()
    assert len(spec["vconcat"]) == 2
    tent = [{**r, "label": "tent"} for r in ROWS["energy-severity"]]
    assert len(figures(ROWS["energy-severity"] + tent)) == 2


def test_files_hold_the_numbers_and_formulas_are_harmless(tmp_path: Path) -> None:
    rows = [{**r, "label": "=1+1"} if r["label"] == "tea" else r for r in ROWS["calibration"]]
    files = write_analysis(rows, tmp_path, formats("json"))
    assert [file.name for file in files] == ["calibration-bins.csv", "calibration-errors.csv", "calibration.json"]
    with (tmp_path / "calibration-errors.csv").open() as file:
        assert [line["label"] for line in csv.DictReader(file)] == ["source", "'=1+1"]
    with pytest.raises(UnknownNameError, match="gif"):
        formats("png,gif")


def test_rows_are_read_with_their_nan_and_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"analysis": "calibration", "version": 1, "ece": "NaN"}\n')
    assert math.isnan(read(tmp_path)[0]["ece"])
    for text, message in (("{}\n", "line 1 is not the row"), ('{"analysis": "x", "version": 99}\n', "newer steep")):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read(path)
    with pytest.raises(InputError, match="expected rows of an analysis"):
        read(tmp_path / "nowhere.jsonl")


def test_every_method_has_a_colour_of_its_own() -> None:
    assert set(METHODS) <= set(COLOURS)
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_no_chart_imports_torch() -> None:
    for file in Path(charts.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "torch" or name.startswith("steep.analysis") for name in names), file
