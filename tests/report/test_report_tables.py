"""Tables against numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import Any

import pytest

from made_rows import row
from steep.errors import InputError
from steep.metrics import SeedSummary, average_accuracy, mean_corruption_error, over_seeds
from steep.report.formats import FORMATS, WIDTH, as_csv, grid, latex, markdown, terminal
from steep.report.paper import benchmark
from steep.report.summary import headline
from steep.report.tables import ECE, MCE, MEAN, Table, build


def one(rows: list[dict[str, Any]]) -> Table:
    (table,) = build(rows)
    return table


def ours(table: Table, line: str, column: str) -> SeedSummary | None:
    return next(each for each in table.lines if each.name == line).values[column].ours


def mean(table: Table, line: str, column: str) -> float:
    value = ours(table, line, column)
    assert value is not None
    return value.mean


def test_average_and_mce_by_hand_over_two_severities() -> None:
    errors = {"source": {"fog": (0.4, 0.8), "snow": (0.2, 0.4)}, "tea": {"fog": (0.1, 0.5), "snow": (0.1, 0.2)}}
    rows = [
        row(method, shift, 1 - error, severity)
        for method, table in errors.items()
        for shift, pair in table.items()
        for severity, error in zip((1, 5), pair, strict=True)
    ]
    severe, both = build(rows)
    assert (severe.severities, both.severities) == ((5,), (1, 5))
    # Severity 5: accuracies 50 and 80; errors against the source 0.5/0.8 and 0.2/0.4.
    assert mean(severe, "tea", MEAN) == pytest.approx(65.0)
    assert mean(severe, "tea", MCE) == pytest.approx(100 * (0.625 + 0.5) / 2)
    # Both: mean error (0.1 + 0.5 + 0.1 + 0.2) / 4; sums over severities 0.6/1.2 and 0.3/0.6.
    assert mean(both, "tea", MEAN) == pytest.approx(77.5)
    assert mean(both, "tea", MCE) == pytest.approx(50.0)
    assert mean(both, "tea", "fog") == pytest.approx(70.0)
    assert mean(both, "source", MCE) == pytest.approx(100.0)
    # and the library's own metrics, which take tensors' company, agree
    full = {m: {s: {1: p[0], 5: p[1]} for s, p in t.items()} for m, t in errors.items()}
    assert mean(both, "tea", MCE) == pytest.approx(100 * mean_corruption_error(full["tea"], full["source"]))
    assert mean(both, "tea", MEAN) == pytest.approx(100 * average_accuracy(full["tea"]))


def test_seed_statistics_by_hand() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.5)]
    for seed, (fog, snow) in enumerate([(0.80, 0.60), (0.82, 0.62), (0.87, 0.61)]):
        rows += [row("tea", "fog", fog, seed=seed), row("tea", "snow", snow, seed=seed)]
    table = one(rows)
    fog, average, mce = (ours(table, "tea", column) for column in ("fog", MEAN, MCE))
    assert fog is not None
    assert average is not None
    assert mce is not None
    assert (fog.mean, fog.n) == (pytest.approx(83.0), 3)
    assert fog.sd == pytest.approx(math.sqrt(((80 - 83) ** 2 + (82 - 83) ** 2 + (87 - 83) ** 2) / 2))
    # Averages by seed: 70, 72, 74. Their deviation, not the mean of the shifts' deviations.
    assert (average.mean, average.sd) == (pytest.approx(72.0), pytest.approx(2.0))
    # mCE by seed: (0.2 + 0.4) / 2 / 0.5 = 60 %, 56 %, 52 %.
    assert (mce.mean, mce.sd) == (pytest.approx(56.0), pytest.approx(4.0))
    theirs = over_seeds([70.0, 72.0, 74.0])
    assert (average.mean, average.sd) == (pytest.approx(theirs.mean), pytest.approx(theirs.sd))
    assert "72.00 ± 2.00" in terminal([table])


def test_ece_is_pooled_over_the_sets() -> None:
    first = {"counts": [0, 10], "confidence": [0.0, 0.9], "accuracy": [0.0, 0.7]}
    second = {"counts": [5, 5], "confidence": [0.4, 0.8], "accuracy": [0.6, 1.0]}
    table = one([row("tent", "fog", 0.7, calibration=first), row("tent", "snow", 0.8, calibration=second)])
    # Bin 0: 5 × 0.2. Bin 1: 10 × (−0.2) + 5 × 0.2 = −1. Together (1 + 1) / 20; a mean of two ECEs would be 0.2.
    assert mean(table, "tent", ECE) == pytest.approx(10.0)


def test_half_a_grid_is_missing_never_zero() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.5), row("tea", "fog", 0.9)]
    table = one(rows)
    assert ours(table, "tea", "snow") is None
    assert ours(table, "tea", MEAN) is None
    assert ours(table, "tea", MCE) is None
    line = next(text for text in terminal([table]).splitlines() if text.startswith("tea"))
    assert line.split()[1:5] == ["–", "90.00", "–", "–"]  # snow, fog, mean, mCE
    assert "| – |" in markdown([table])
    assert " 0.00" not in line


def test_one_missing_severity_makes_the_average_missing() -> None:
    rows = [row("source", "fog", 0.5, s) for s in (1, 5)] + [row("tea", "fog", 0.9, 5)]
    severe, both = build(rows)
    assert mean(severe, "tea", "fog") == pytest.approx(90.0)
    assert ours(both, "tea", "fog") is None


def test_a_seed_that_is_not_finished_does_not_count_in_averages() -> None:
    rows = [row("tea", "fog", 0.8), row("tea", "snow", 0.6), row("tea", "fog", 0.9, seed=1)]
    table = one(rows)
    value = ours(table, "tea", MEAN)
    assert value == SeedSummary(mean=pytest.approx(70.0), sd=None, n=1)
    assert mean(table, "tea", "fog") == pytest.approx(85.0)


def test_without_the_source_model_there_is_no_mce_and_a_note() -> None:
    table = one([row("tea", "fog", 0.8)])
    assert ours(table, "tea", MCE) is None
    assert any("mCE needs the source" in note for note in table.notes)


def test_nan_is_shown_as_nan() -> None:
    table = one([row("tea", "fog", math.nan, nonfinite=10, calibration=None), row("source", "fog", 0.5)])
    line = next(text for text in terminal([table]).splitlines() if text.startswith("tea"))
    assert line.split()[1:5] == ["NaN", "NaN", "NaN", "NaN"]
    assert any("1 cells answered with NaN" in note for note in table.notes)
    assert table.best("fog") == {"source"}


def test_segments_become_columns() -> None:
    segments = [
        {"name": "fog", "severity": 5, "n": 10, "error": 0.5},
        {"name": "snow", "severity": 5, "n": 10, "error": 0.3},
        {"name": "fog", "severity": 5, "n": 30, "error": 0.1},
    ]
    table = one([row("tea", "sequence", 0.8, segments=segments, protocol="continual")])
    assert mean(table, "tea", "fog") == pytest.approx(100 * (1 - (10 * 0.5 + 30 * 0.1) / 40))
    assert mean(table, "tea", "snow") == pytest.approx(70.0)
    assert "protocol continual" in table.notes[0]


def test_clean_stands_beside_and_is_in_no_average() -> None:
    rows = [
        row("source", "clean", 0.99, 0),
        row("source", "fog", 0.5),
        row("tea", "clean", 0.9, 0),
        row("tea", "fog", 0.8),
    ]
    table = one(rows)
    assert table.columns[:3] == ("clean", "fog", MEAN)
    assert mean(table, "tea", MEAN) == pytest.approx(80.0)
    assert mean(table, "tea", "clean") == pytest.approx(90.0)
    assert mean(table, "tea", MCE) == pytest.approx(40.0)
    only = one([row("tea", "clean", 0.9, 0)])
    assert only.columns == ("clean", ECE, "images/s")


def paper_rows(method: str, accuracy: float, **more: Any) -> list[dict[str, Any]]:
    more = {"batch_size": 200, **more}
    return [row(method, name, accuracy, data="cifar10-c", model="wrn-28-10", **more) for name in benchmark()]


def test_the_papers_figure_stands_beside_ours() -> None:
    table = one(paper_rows("source", 0.56) + paper_rows("tea", 0.80))
    line = next(line for line in table.lines if line.method == "tea")
    assert line.values["fog"].paper == 87.61
    assert line.values["fog"].difference == pytest.approx(80 - 87.61)
    assert line.values[MEAN].paper == 83.34
    assert line.values[MCE].paper == 43.69
    text = markdown([table])
    assert "−7.61" in text
    assert "87.61" in text
    rows = list(csv.DictReader(io.StringIO(as_csv([table]))))
    fog = next(r for r in rows if r["method"] == "tea" and r["column"] == "fog")
    assert (fog["mean"], fog["paper"], fog["difference"], fog["n"]) == ("80.0", "87.61", "-7.61", "1")


@pytest.mark.parametrize(
    "more",
    [
        {"limit": 100},
        {"setting": "tuned"},
        {"protocol": "label-shift"},
        {"label": "tea-fast"},
        {"batch_size": 1},
        {"steps": 2},
        {"episodic": True},
        {"guard": "skip"},
        {"hyper": {"lr": 1e-4}},
        {"hyper": {"sgld_steps": 3}},
    ],
)
def test_no_figure_of_the_paper_where_ours_is_of_something_else(more: dict[str, Any]) -> None:
    table = one(paper_rows("tea", 0.80, **more))
    assert all(value.paper is None for value in table.lines[0].values.values())


def test_the_papers_figure_stands_beside_the_first_thousand_images_too() -> None:
    table = one(paper_rows("tea", 0.80, limit=1000))
    assert table.lines[0].values[MEAN].paper == 83.34
    assert any("the paper's figures are of whole sets" in note for note in table.notes)
    assert not any("whole sets" in note for note in one(paper_rows("tea", 0.80)).notes)


def test_no_average_of_the_paper_beside_an_average_over_other_shifts() -> None:
    table = one(paper_rows("tea", 0.80)[:7])
    assert table.lines[0].values[MEAN].paper is None
    assert table.lines[0].values["shot_noise"].paper == 79.87


def test_pacs_by_source_domain() -> None:
    rows = [
        row("tea", target, 0.3, 0, data="pacs", model="resnet-18-bn", source="photo", batch_size=0, steps=10, size=32)
        for target in ("art_painting", "cartoon", "sketch")
    ]
    table = one(rows)
    assert table.title.startswith("PACS from photo, 32 pixels · ResNet-18 · ")
    assert table.lines[0].values["cartoon"].paper == 33.62
    assert table.lines[0].values[MEAN].paper == 27.64


def test_lines_of_one_name_say_what_they_differ_in() -> None:
    rows = [row("tea", "fog", 0.8, hyper={"lr": lr}) for lr in (1e-3, 1e-4)] + [row("tea", "fog", 0.7, setting="tuned")]
    assert {line.name for line in one(rows).lines} == {"tea lr=0.001", "tea lr=0.0001", "tea (tuned)"}


def test_other_data_models_and_limits_are_other_tables() -> None:
    rows = [row("tea", "fog", 0.8), row("tea", "fog", 0.8, limit=5), row("tea", "fog", 0.8, model="x")]
    assert len(build(rows)) == 3


def test_a_cell_run_twice_counts_once_and_the_latest_wins() -> None:
    table = one([row("tea", "fog", 0.8, finished="2026-02"), row("tea", "fog", 0.7, finished="2026-01")])
    assert mean(table, "tea", "fog") == pytest.approx(80.0)
    assert "1 cells were run more than once (1 of them with another accuracy); the latest counts" in table.notes
    same = one([row("tea", "fog", 0.8, finished="2026-02"), row("tea", "fog", 0.8, finished="2026-01")])
    assert "1 cells were run more than once; the latest counts" in same.notes


def test_notes_state_protocol_setting_n_and_device() -> None:
    notes = " ".join(one([row("tea", "fog", 0.8), row("sar", "fog", 0.8, setting="tuned")]).notes)
    for part in (
        "protocol reset",
        "batch 100",
        "settings: paper, tuned",
        "n = 10",
        "NVIDIA H200",
        "commit cccccccccccc",
    ):
        assert part in notes


def test_formats_escape_what_came_from_outside() -> None:
    table = one([row("tea", "fog", 0.8, weights="a_b|<x>&%", label="my_tea")])
    assert r"my\_tea" in latex([table])
    assert "a_b|<x>&%" not in markdown([table])
    assert r"a\_b\|&lt;x>&amp;%" in markdown([table])
    assert set(FORMATS) == {"markdown", "latex", "csv"}


def test_latex_is_booktabs_with_the_best_in_bold() -> None:
    text = latex([one([row("source", "fog", 0.5), row("tea", "fog", 0.8)])])
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 1
    assert r"\textbf{80.00}" in text
    assert r"\textbf{40.00}" in text  # the smaller mCE
    columns = {line.count("&") for line in text.splitlines() if line.endswith(r"\\")}
    assert columns == {7}


def test_every_row_of_the_grid_has_every_column() -> None:
    table = one(paper_rows("source", 0.5) + paper_rows("tea", 0.8))
    assert {len(line) for line in grid(table)} == {len(table.columns) + 3}
    assert grid(table)[0][1:-2] == [*table.columns]


def test_a_column_that_says_nothing_is_not_shown() -> None:
    """Rows without a speed and without the source model: no speed and no mCE; a shift that has not run is a gap."""
    rows = [row("tea", "fog", 0.8, severity) for severity in (3, 5)] + [row("tea", "snow", 0.7, 5)]
    for each in rows:
        del each["images_per_s"], each["calibration"]
    gap = next(table for table in build(rows) if table.severities == (3, 5))
    assert grid(gap)[0] == ["method", "snow", "fog", "seeds", "predicts"]
    severe = next(table for table in build(rows) if table.severities == (5,))
    assert grid(severe)[0] == ["method", "snow", "fog", "mean", "seeds", "predicts"]
    assert grid(severe)[1] == ["tea", "70.00", "80.00", "75.00", "1", "before"]
    assert "images/s" not in markdown([severe]) + latex([severe])
    with_speed = one([row("tea", "fog", 0.8)])
    assert grid(with_speed)[0] == ["method", "fog", "mean", "ECE", "images/s", "seeds", "predicts"]


def lines_of(text: str) -> dict[str, list[str]]:
    """The lines of the first table in the terminal, by their first word."""
    return {line.split()[0]: line.split()[1:] for line in text.partition("\n\n")[0].splitlines()[1:]}


def test_the_terminal_shows_means_ranked_with_the_best_in_bold_within_eighty_columns() -> None:
    table = one(paper_rows("source", 0.56, seed=0) + paper_rows("tea", 0.80) + paper_rows("tea", 0.82, seed=1))
    text = terminal([table])
    assert max(map(len, text.splitlines())) <= WIDTH == 80
    shown = lines_of(text)
    assert list(shown) == ["method", "──────", "tea", "source"]
    assert shown["method"] == ["mean", "paper", "Δ", "mCE", "ECE", "images/s", "seeds"]
    assert shown["tea"][:6] == ["81.00", "±", "1.41", "83.34", "−2.34", "43.18"]  # mCE: 100 × 0.19 / 0.44
    assert "tea leads with 81.00 %" in text
    assert "\x1b" not in text
    assert "\x1b[1m81.00 ± 1.41\x1b[0m" in terminal([table], colour=True)


def test_the_terminal_shows_single_shifts_only_where_they_fit() -> None:
    table = one([row(name, "fog", right) for name, right in (("source", 0.5), ("tea", 0.8))])
    assert lines_of(terminal([table]))["method"][:2] == ["fog", "mean"]
    assert "paper" not in lines_of(terminal([table]))["method"]  # there is no figure of digits
    assert "seeds" not in lines_of(terminal([table]))["method"]  # all have one
    wide = one(paper_rows("source", 0.5) + paper_rows("tea", 0.8))
    assert "fog" not in lines_of(terminal([wide]))["method"]
    assert "--format markdown" in terminal([wide])


def test_nothing_to_report_says_so() -> None:
    with pytest.raises(InputError, match="at least one row"):
        build([])


NASTY = "=cmd|'/C calc'!A1 <b>[x](javascript:1)`\n% \\input{secret}\x1b[31m"


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "csv"])
def test_text_of_a_stranger_stays_text(form: str) -> None:
    note = "a note \n\\input{secret}"
    table = one([row("tea", "fog", 0.8, label=NASTY, weights=NASTY, notes=[note])])
    text = {**FORMATS, "terminal": terminal}[form]([table])
    assert "\x1b" not in text
    if form != "terminal":
        assert not any(line.lstrip().startswith(("% \\input", "\\input")) for line in text.splitlines())
    if form == "markdown":
        assert "<b>" not in text
        assert "[x](" not in text
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| ")}
        assert widths == {8}  # no cell of its own made of a bar inside
    if form == "csv":
        for cells in csv.DictReader(io.StringIO(text)):
            assert cells["method"].startswith("'=cmd")
            assert not any(value.startswith(("=", "+", "@")) for value in cells.values())


def test_csv_says_what_decided_a_number() -> None:
    text = as_csv([one([row("tea", "fog", 0.8, hyper={"lr": 0.5, "start": [0, 1]}, guard="skip", steps=3)])])
    cells = next(csv.DictReader(io.StringIO(text)))
    assert cells["hyper"] == '{"lr": 0.5, "start": [0, 1]}'
    assert (cells["guard"], cells["steps"], cells["weights_sha256"]) == ("skip", "3", "ab" * 32)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"schema": 1, "key": "k", "spec": {}}, "without data, shift, severity, method, accuracy, n"),
        ({"schema": 1, "key": "k", "spec": 3, "accuracy": 0.5, "n": 1}, "without data, shift, severity, method"),
        ({**row("tea", "fog", 0.5), "accuracy": None}, "without accuracy"),
    ],
)
def test_a_row_that_is_none_is_named(broken: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"expected rows of steep bench, got one .*{message}"):
        build([row("tea", "fog", 0.5), broken])


def test_a_table_says_what_a_reader_would_not_see() -> None:
    def notes(*rows: dict[str, Any]) -> str:
        return " ".join(one(list(rows)).notes)

    assert "the guard undid 5 steps" in notes(
        row("tea", "fog", 0.8, guard="skip", undone=2), row("tea", "snow", 0.8, guard="skip", undone=3)
    )
    same, other = [{"sha256": "a"}], [{"sha256": "b"}]
    first, second = row("source", "fog", 0.5), row("tea", "fog", 0.8)
    first["data"], second["data"] = same, other
    assert "not all methods saw the same images of a shift" in notes(first, second)
    second["data"] = same
    assert "same images" not in notes(first, second)
    half = [row("tea", "fog", 0.8), row("tea", "snow", 0.6), row("tea", "fog", 0.9, seed=1)]
    assert "not finished: tea; averages are over the seeds that are whole" in notes(*half)
    assert "not finished" not in notes(*half[:2])
    begun = [row("source", "fog", 0.5, grid=(1_500, 2_000)), row("tea", "fog", 0.8, grid=(3, 4)), row("bn", "fog", 0.6)]
    assert "a part of a bench: 1,500 of 2,000 cells and 3 of 4 cells have run so far; averages are over" in notes(
        *begun
    )
    assert "part of a bench" not in notes(begun[2])
    assert headline(one(begun[:1])).endswith(" So far 1,500 of 2,000 cells of this bench have run.")
    assert "So far" not in headline(one(begun[2:]))
    assert "no figure of the paper where batch" in notes(*paper_rows("tea", 0.8, batch_size=64))
    assert "no figure of the paper" not in notes(*paper_rows("tea", 0.8))
    assert "no figure of the paper" not in notes(*half)  # there is none of digits anyway
