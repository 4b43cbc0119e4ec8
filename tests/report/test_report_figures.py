"""Figures as files, and the document's words."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from legible import LEAST, smallest
from made_rows import METHODS, row
from steep.bench.rows import encode
from steep.cli import main
from steep.errors import InputError
from steep.report.charts.style import colour, titled
from steep.report.export import write
from steep.report.figures import memories, of
from steep.report.runs import read
from steep.report.tables import build


@pytest.fixture
def run(tmp_path: Path) -> Path:
    more = {"energy_before": -5.0, "energy_after": -6.0, "peak_memory": {"bytes": 2**30, "of": "tensors"}}
    other = {**more, "peak_memory": {"bytes": 2**31, "of": "tensors"}}
    rows = [row("source", "fog", 0.5, **more), row("tea", "fog", 0.8, label="=tea/../x", **other)]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    return tmp_path / "run"


def test_pictures_in_three_formats_and_the_data_behind_each(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    assert main(["report", str(run), "--figures", str(out), "--format", "png,svg,pdf"]) == 0
    printed = capsys.readouterr().out.split()
    assert {Path(path) for path in printed} == set(out.iterdir())
    stems = {path.name.rsplit(".", 1)[0] for path in out.iterdir()}
    assert stems == {f"digits-c-s5-wrn-10-1-reset-{name}" for name in ("energy", "energy-gain", "speed", "memory")}
    starts = {"png": b"\x89PNG\r\n", "svg": b"<svg", "pdf": b"%PDF-"}
    assert "Energy before and after" in (out / "digits-c-s5-wrn-10-1-reset-energy.svg").read_text(encoding="utf-8")
    for stem in stems:
        for kind, start in starts.items():
            assert (out / f"{stem}.{kind}").read_bytes().startswith(start)
    with (out / "digits-c-s5-wrn-10-1-reset-energy-gain.csv").open(encoding="utf-8") as file:
        (point,) = csv.DictReader(file)
    assert point == {"method": "'=tea/../x", "shift": "fog", "severity": "5", "reduction": "1.0", "gain": "30.0"}


def test_only_what_is_asked_for_is_written(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = list(write(read([run]), tmp_path / "f", ["svg"]))
    assert {path.suffix for path in files} == {".svg", ".csv"}
    assert main(["report", str(run), "--figures", str(tmp_path / "g"), "--format", "gif"]) == 2
    assert "unknown format of a figure 'gif'" in capsys.readouterr().err
    assert not (tmp_path / "g").exists()


def test_without_the_extra_it_says_which(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vl_convert", "altair"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match="report"):
            list(write(read([run]), tmp_path / "f"))
        monkeypatch.undo()
    assert not (tmp_path / "f").exists()


def test_two_tables_of_one_title_do_not_overwrite_each_other(tmp_path: Path) -> None:
    more = {"energy_before": -5.0, "energy_after": -6.0}
    rows = [row("tea", "fog", 0.8, weights=name, **more) for name in ("one", "two")]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    files = list(write(read([tmp_path]), tmp_path / "f", ["svg"]))
    assert len(files) == len(set(files)) == len(list((tmp_path / "f").iterdir()))


def test_one_colour_for_each_method_and_lighter_shades_for_its_variants() -> None:
    bars = {"counts": [0, 10], "confidence": [0.0, 0.75], "accuracy": [0.0, 0.5]}
    more = {"energy_before": -5.0, "energy_after": -6.0, "reliability": bars}
    rows = [row(name, "fog", 0.5, level, **more) for name in ("source", "tent", "tea") for level in (4, 5)]
    rows += [row("tent", "fog", 0.6, level, setting="tuned", **more) for level in (4, 5)]
    every = [scale for figure in of(build(rows)[-1]) for scale in scales(figure.spec())]
    ranges = [dict(zip(scale["domain"], scale["range"], strict=True)) for scale in every]
    assert len(ranges) >= 4  # severity, energy and gain, reliability, speed
    for chosen in ranges:
        assert {name: value for name, value in chosen.items() if name in ranges[0]} == chosen
        assert chosen["tent"].upper() == colour("tent").upper()
        assert chosen["tent (tuned)"] not in {chosen[name] for name in chosen if name != "tent (tuned)"}
        light, dark = (sum(int(chosen[n][i : i + 2], 16) for i in (1, 3, 5)) for n in ("tent (tuned)", "tent"))
        assert light > dark


def scales(spec: object) -> list[dict[str, list[str]]]:
    """Every colour scale of a chart."""
    if isinstance(spec, list):
        return [scale for part in spec for scale in scales(part)]
    if not isinstance(spec, dict):
        return []
    colour = spec.get("color")
    here = [colour["scale"]] if isinstance(colour, dict) and "range" in colour.get("scale", {}) else []
    return here + [scale for part in spec.values() for scale in scales(part)]


def test_letters_can_be_read_on_a_phone() -> None:
    bars = {"counts": [0] * 5 + [10] * 5, "confidence": [0.0] * 5 + [0.55, 0.65, 0.75, 0.85, 0.95]}
    more = {"energy_before": -6.0, "energy_after": -7.0, "reliability": {**bars, "accuracy": [0.0] * 5 + [0.5] * 5}}
    rows = [
        row(name, "fog", 0.5 + number / 100, level, **more, peak_memory={"bytes": 2**30 * (1 + number), "of": "all"})
        for number, name in enumerate(METHODS)
        for level in (3, 5)
    ]
    figures = {figure.name: figure for figure in of(build(rows)[-1])}
    assert figures.keys() == {"severity", "energy-gain", "energy", "reliability", "speed", "memory"}
    where = "CIFAR-100-C, severity 1–5 · WRN-28-10 · model reset before each corruption · source model of 104 epochs"
    for name, figure in figures.items():
        assert smallest(titled(figure.spec(), figure.title, where)) >= LEAST, name


def test_equal_memories_are_not_drawn(tmp_path: Path) -> None:
    more = {"peak_memory": {"bytes": 2**30, "of": "the process"}}
    table = build([row("source", "fog", 0.5, **more), row("tea", "fog", 0.8, **more)])[0]
    assert "memory" not in [figure.name for figure in of(table)]
    assert memories(table) == {}


def test_accuracies_are_drawn_from_zero() -> None:
    table = build([row("tea", "fog", 0.8, level) for level in (4, 5)])[-1]
    figures = {figure.name: figure.spec() for figure in of(table)}
    assert figures["severity"]["encoding"]["y"]["scale"]["zero"] is True


def test_a_point_below_others_shows_around_them() -> None:
    speeds = {"shot": 440.0, "tent": 441.0, "tea": 30.0}
    table = build([row(name, "fog", 0.8, images_per_s=speed) for name, speed in speeds.items()])[-1]
    (figure,) = (figure for figure in of(table) if figure.name == "speed")
    spec = figure.spec()
    (points,) = (layer for layer in spec["layer"] if "size" in layer["encoding"])
    sizes = {one["method"]: one["size"] for one in spec["datasets"][points["data"]["name"]]}
    assert list(sizes) == ["shot", "tent", "tea"]  # in this order they are drawn
    assert sizes["shot"] > sizes["tent"] == sizes["tea"]
