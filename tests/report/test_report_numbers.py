"""What the page, its figures and the documents show, worked out again from the raw lines with plain arithmetic."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from test_report_page import SRC, Page

from steep.report import page as page_module
from steep.report.figures import Figure, of
from steep.report.formats import records_as_csv
from steep.report.page import html
from steep.report.runs import read
from steep.report.tables import Table, build

Raw = list[dict[str, Any]]


@pytest.fixture(scope="module")
def raw(stored: Path) -> Raw:
    return [json.loads(line) for line in stored.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def table(stored: Path) -> Table:
    (made,) = build(read([stored]).rows)
    return made


@pytest.fixture(scope="module")
def page(table: Table) -> Page:
    patch = pytest.MonkeyPatch()
    patch.setattr(page_module, "vega", lambda: "")
    made = Page(html([table]))
    patch.undo()
    return made


@pytest.fixture(scope="module")
def by_method(raw: Raw) -> dict[str, Raw]:
    groups: dict[str, Raw] = defaultdict(list)
    for row in raw:
        groups[row["spec"]["method"]].append(row)
    assert {len(rows) for rows in groups.values()} == {15}
    return dict(groups)


def printed() -> dict[str, list[float]]:
    """The paper's mean and mCE at severity 5, from the file of its figures."""
    blocks = tomllib.loads((SRC / "steep" / "recipes" / "paper.toml").read_text(encoding="utf-8"))["block"]
    figures: dict[str, list[float]] = next(
        b["methods"]
        for b in blocks
        if (b["data"], b["severities"], b["columns"]) == ("cifar10-c", [5], ["mean", "mce"])
    )
    return figures


def text(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def test_the_leaderboard(page: Page, by_method: dict[str, Raw]) -> None:
    head, *lines = page.tables["board"]
    assert head[:8] == ["method", "mean accuracy", "paper", "Δ", "mCE", "paper", "Δ", "ECE"]
    source = {row["spec"]["shift"]: row["error"] for row in by_method["source"]}
    means = []
    for name, *cells in lines:
        rows = by_method[name]
        mean = 100 * statistics.fmean(row["accuracy"] for row in rows)
        mce = 100 * statistics.fmean(row["error"] / source[row["spec"]["shift"]] for row in rows)
        gaps = defaultdict(float)
        for row in rows:
            bins = row["calibration"]
            for i, count in enumerate(bins["counts"]):
                gaps[i] += count * (bins["accuracy"][i] - bins["confidence"][i])
        ece = 100 * sum(map(abs, gaps.values())) / sum(row["n"] for row in rows)
        theirs, their_mce = printed()[name]
        signs = [("+" if d > 0.005 else "") + text(d) for d in (mean - theirs, mce - their_mce)]
        assert cells[:7] == [text(mean), text(theirs), signs[0], text(mce), text(their_mce), signs[1], text(ece)], name
        speed = statistics.fmean(row["images_per_s"] for row in rows)
        peak = max(row["peak_memory"]["bytes"] for row in rows) / 2**30
        assert cells[7:9] == [f"{speed:,.0f}", text(peak)]
        means.append(mean)
    assert means == sorted(means, reverse=True)
    assert len(means) == 10


def test_the_heat_map(page: Page, by_method: dict[str, Raw]) -> None:
    (head, *lines) = page.tables["heat"]
    shown = json.loads(page.scripts["heat-1-data"])["modes"]
    for r, (name, *cells) in enumerate(lines):
        by_shift = {row["spec"]["shift"]: row["accuracy"] for row in by_method[name]}
        base = {row["spec"]["shift"]: row["accuracy"] for row in by_method["source"]}
        for c, (column, cell) in enumerate(zip(head[1:-1], cells[:-1], strict=True)):
            shift = column.replace(" ", "_")
            assert float(cell) == pytest.approx(100 * by_shift[shift], abs=0.0501)  # one digit is shown
            gain = float(shown["gain"][0][r][c][0].replace("−", "-"))
            assert gain == pytest.approx(100 * (by_shift[shift] - base[shift]), abs=0.0501)


def test_the_headline_and_the_facts(page: Page, by_method: dict[str, Raw]) -> None:
    means = {name: 100 * statistics.fmean(row["accuracy"] for row in rows) for name, rows in by_method.items()}
    best, second = sorted(means, key=lambda name: -means[name])[:2]
    rights = [row["accuracy"] for name in (best, second) for row in by_method[name]]
    error = 100 * math.sqrt(sum(right * (1 - right) / 10_000 for right in rights)) / 15
    ahead = means[best] - means[second]
    interval = f"+{ahead - 2 * error:.1f} to +{ahead + 2 * error:.1f}"
    assert f"{best} leads with {means[best]:.2f} % accuracy over 15 shifts; against {second}" in page.text
    assert f"against {second}: +{ahead:.1f} points (95 %: {interval})" in page.text
    assert f"against the source model ({means['source']:.2f} %): +{means[best] - means['source']:.1f}" in page.text
    for part in ("1,500,000", "NVIDIA H200", "17eb2e7efa95", "2026-11-15 12:22 to 12:29", "torch 2.11.0+cu130"):
        assert part in page.text


def drawn(table: Table, name: str) -> list[dict[str, str]]:
    """The records of a figure, through the CSV that is written beside it."""
    figure = next(figure for figure in of(table) if figure.name == name)
    ((_, records),) = figure.tables.items()
    return list(csv.DictReader(io.StringIO(records_as_csv(records))))


def test_energy_figures(table: Table, by_method: dict[str, Raw]) -> None:
    base = {row["spec"]["shift"]: row["accuracy"] for row in by_method["source"]}
    by_place = {(r["spec"]["method"], r["spec"]["shift"]): r for rows in by_method.values() for r in rows}
    points = drawn(table, "energy-gain")
    assert len(points) == 9 * 15
    for point in points:
        row = by_place[point["method"], point["shift"]]
        assert float(point["reduction"]) == pytest.approx(
            row["energy_before"] - row["energy_after"], rel=1e-4, abs=1e-5
        )
        assert float(point["gain"]) == pytest.approx(100 * (row["accuracy"] - base[point["shift"]]), rel=1e-4)
    for point in drawn(table, "energy"):
        rows = by_method[point["method"]]
        assert float(point["after"]) == pytest.approx(statistics.fmean(r["energy_after"] for r in rows), rel=1e-4)
        assert float(point["before"]) == pytest.approx(statistics.fmean(r["energy_before"] for r in rows), rel=1e-4)


def test_the_reliability_diagram(table: Table, by_method: dict[str, Raw]) -> None:
    bars = drawn(table, "reliability")
    assert len(bars) == 10 * 10
    for bar in bars:
        rows = [row["reliability"] for row in by_method[bar["method"]]]
        index = round(float(bar["low"]) * 10)
        images = sum(row["counts"][index] for row in rows)
        right = sum(row["counts"][index] * row["accuracy"][index] for row in rows)
        assert int(bar["images"]) == images
        assert float(bar["accuracy"]) == pytest.approx(right / images if images else 0.0, rel=1e-4)


def test_speed_and_memory(table: Table, by_method: dict[str, Raw]) -> None:
    points = {point["method"]: point for point in drawn(table, "speed")}
    for name, rows in by_method.items():
        assert float(points[name]["images_per_s"]) == pytest.approx(
            statistics.fmean(row["images_per_s"] for row in rows), rel=1e-4
        )
    front = {name for name, point in points.items() if point["front"] == "True"}
    assert {"tea", "source"} <= front  # the most accurate, and the fastest
    assert not {"pl", "dua", "sar"} & front
    for bar in drawn(table, "memory"):
        peak = max(row["peak_memory"]["bytes"] for row in by_method[bar["method"]])
        assert float(bar["gib"]) == pytest.approx(peak / 2**30, rel=1e-4)


def test_accuracy_against_severity() -> None:
    from made_rows import row

    rows = [row("tea", s, a - level / 10, level) for level in (1, 2) for s, a in (("fog", 0.9), ("snow", 0.7))]
    both = build(rows)[-1]
    assert {(r["severity"], float(r["accuracy"])) for r in drawn(both, "severity")} == {("1", 70.0), ("2", 60.0)}


def test_every_figure_is_drawn_from_its_records(table: Table) -> None:
    def values(figure: Figure) -> Any:
        spec = figure.spec()
        lists = [part for part in _data(spec) if isinstance(part, list)]
        return [record for part in (*lists, *spec.get("datasets", {}).values()) for record in part]

    for figure in of(table):
        ((_, records),) = figure.tables.items()
        shown = [{k: v for k, v in one.items() if k in records[0]} for one in values(figure)]
        for record in records:
            if record.get("images") != 0:  # an empty bin has no bar
                assert record in shown, figure.name


def _data(spec: Any) -> list[Any]:
    if isinstance(spec, dict):
        here = [spec["data"]["values"]] if isinstance(spec.get("data"), dict) and "values" in spec["data"] else []
        return here + [values for key, part in spec.items() if key != "data" for values in _data(part)]
    return [values for part in spec for values in _data(part)] if isinstance(spec, list) else []


def test_the_claims(page: Page, by_method: dict[str, Raw]) -> None:
    verdicts = {line[0]: line[1:] for line in page.tables["claims"]}
    wins = 0
    for shift in {row["spec"]["shift"] for row in by_method["tea"]}:
        right = {name: r["accuracy"] for name, rows in by_method.items() for r in rows if r["spec"]["shift"] == shift}
        wins += right["tea"] > max(value for name, value in right.items() if name != "tea")
    assert verdicts["TEA has the highest accuracy on every shift"][0].startswith(f"on {wins} of 15; not on")
    assert "_" not in verdicts["TEA has the highest accuracy on every shift"][0]  # corruptions as people write them
    fell = sum(row["energy_after"] < row["energy_before"] for row in by_method["tea"])
    here, verdict = verdicts["TEA lowers the mean energy of the test images, whatever the shift"]
    assert here == f"on {fell} of 15"
    assert ("does not hold" in verdict) is (fell < 15)
