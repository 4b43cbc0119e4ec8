"""Why numbers differ from the paper's: each explanation finds its numbers, and a slip in the file is an error."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from made_rows import grid, ten
from steep.bench.rows import encode
from steep.errors import InputError, UnknownNameError
from steep.report.runs import Runs, Source
from steep.report.tables import build
from tools.results_page.evidence import Evidence
from tools.results_page.explanations import NONE, Explanation, notes, read, remarks
from tools.results_page.site import pages

HOME = Path(__file__).parents[2]
GOOD = '[[explanation]]\ndata = "cifar10-c"\nmodel = "wrn-28-10"\nseverities = [5]\nmethods = ["bn"]\ntext = "Why."\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "explanations.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_difference_of_more_than_a_point_has_a_note() -> None:
    # paper, severity 5: source 56.47 (ours 50), bn 79.56 (ours 79), tea 83.34 (ours 84.40)
    (table,) = build(grid({"source": 0.5, "bn": 0.79, "tea": 0.844}))
    first, last = notes(table, [Explanation("Other weights.", "cifar10-c", methods=("source",))])
    assert (first.number, first.text) == (1, "Other weights.")
    assert first.differences == (("source", "mean", pytest.approx(-6.47)),)
    assert last.text == NONE
    away_by = {(method, column): away for method, column, away in last.differences}
    assert away_by["tea", "mean"] == pytest.approx(1.06)
    assert ("bn", "mean") not in away_by  # 0.56 off
    # mCE: bn errs 21 where the source errs 50, so 42.00, paper 52.65; tea 15.6 / 50, so 31.20, paper 43.69
    assert away_by["bn", "mCE"] == pytest.approx(42.0 - 52.65)
    assert away_by["tea", "mCE"] == pytest.approx(31.2 - 43.69)


@pytest.mark.parametrize(
    ("more", "hit"),
    [
        ({}, True),
        ({"model": "wrn-28-10", "severities": (5,), "methods": ("source",)}, True),
        ({"model": "resnet-50-gn"}, False),
        ({"severities": (1, 2, 3, 4, 5)}, False),
        ({"severities": (0,)}, False),
        ({"methods": ("bn",)}, False),
        ({"data": "cifar100-c"}, False),
    ],
)
def test_an_explanation_is_of_what_it_names(more: dict[str, object], hit: bool) -> None:
    (table,) = build(grid({"source": 0.5}))
    (note,) = notes(table, [Explanation("Why.", **{"data": "cifar10-c", **more})])  # type: ignore[arg-type]
    assert (note.text == "Why.") == hit


def test_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, grid({"bn": 0.7}))))
    (one,) = read(write(tmp_path, GOOD + 'evidence = "rows.jsonl"\nlabel = "bn"\n'))
    assert str(one) == "Why. (rows: rows.jsonl, bn)"
    assert (one.data, one.model, one.severities, one.methods) == ("cifar10-c", "wrn-28-10", (5,), ("bn",))
    assert read(write(tmp_path, "# nothing yet\n")) == ()


def test_a_remark_is_said_whatever_the_paper_has(tmp_path: Path) -> None:
    text = '[[remark]]\ndata = "cifar10-c"\nmodel = "resnet-50-gn"\ntext = "One class takes all."\n'
    (remark,) = read(write(tmp_path, text))
    (norms,) = build(grid({"source": 0.5, "tea": 0.4}, model="resnet-50-gn"))
    (usual,) = build(grid({"source": 0.5, "tea": 0.4}))
    assert remarks(norms, [remark]) == ["One class takes all."]
    assert remarks(usual, [remark]) == []
    explained = Explanation("Why.", "cifar10-c")
    assert remarks(usual, [explained]) == []
    assert all("One class" not in note.text for note in notes(usual, [replace(remark, model="")]))
    with pytest.raises(UnknownNameError, match="methods"):
        read(write(tmp_path, text + 'methods = ["tea"]\n'))


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (GOOD.replace('"bn"', '"bm"'), "unknown method"),
        (GOOD.replace("cifar10-c", "cifar10c"), "did you mean 'cifar10-c'"),
        (GOOD.replace("wrn-28-10", "wrn-28"), "did you mean 'wrn-28-10'"),
        (GOOD.replace("severities = [5]", "severities = [4]"), "expected severities of the paper's tables"),
        (GOOD.replace("methods", "method"), "did you mean 'methods'"),
        (GOOD.replace('methods = ["bn"]', 'methods = "bn"'), "expected methods to be a list"),
        (GOOD.replace('text = "Why."', ""), "expected text"),
        (GOOD.replace("[[explanation]]", "[[explanations]]"), "did you mean 'explanation'"),
        (GOOD + 'evidence = "nowhere.jsonl"\n', "expected evidence to be a file"),
        (GOOD + 'label = "bn"\n', "expected evidence"),
        (GOOD + "= 1", "not valid TOML"),
        ("explanation = [1]", "expected a table"),
        ("remark = [1]", "expected a table"),
        ("remark = 1", r"expected [[remark]] tables"),
        # the paper has no DUA with GroupNorm, so there is no number to explain
        (GOOD.replace("wrn-28-10", "resnet-50-gn").replace('"bn"', '"dua"'), "unknown method"),
    ],
)
def test_a_slip_is_an_error_with_the_fix(tmp_path: Path, slip: str, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message.replace("[", r"\[")):
        read(write(tmp_path, slip))


def test_evidence_has_the_lines_it_is_named_for(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, grid({"bn": 0.7}))))
    with pytest.raises(UnknownNameError, match="label"):
        read(write(tmp_path, GOOD + 'evidence = "rows.jsonl"\nlabel = "tea-kept"\n'))


def test_evidence_that_is_no_rows_is_an_error_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("no JSON\n", encoding="utf-8")
    with pytest.raises(InputError, match="one JSON object a line"):
        read(write(tmp_path, GOOD + 'evidence = "rows.jsonl"\nlabel = "bn"\n'))


def test_the_file_of_this_project_is_good() -> None:
    read(HOME / "results" / "explanations.toml")


@pytest.mark.parametrize(
    ("data", "model", "source", "method"),
    [
        ("cifar10-c", "wrn-28-10", "", "pl"),
        ("cifar100-c", "wrn-28-10", "", "tea"),
        ("cifar10-c", "resnet-50-gn", "", ""),
        ("cifar100-c", "resnet-50-gn", "", ""),
        *(("pacs", "resnet-18-bn", source, "tea") for source in ("photo", "cartoon", "sketch")),
        ("pacs", "resnet-18-bn", "", "bn"),
    ],
)
def test_what_was_tried_in_vain_is_closed_with_the_rows_named(data: str, model: str, source: str, method: str) -> None:
    closed = [
        str(one)
        for one in read(HOME / "results" / "explanations.toml")
        if (one.data, one.model, one.source) == (data, model, source)
        and (not method or method in one.methods)
        and "closed as unexplained" in one.text.lower()
    ]
    assert closed
    for text in closed:
        names = re.findall(r"[\w.-]+\.jsonl", text)
        assert names
        assert all((HOME / "results" / name).is_file() for name in names)


def test_every_file_that_is_quoted_is_named(tmp_path: Path) -> None:
    for name, accuracy in (("rows", 0.7), ("other", 0.8)):
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(map(encode, grid({"bn": accuracy}))))
    text = GOOD.replace("Why.", "Ours {bn}, another {other/bn}.") + 'evidence = "rows.jsonl"\n'
    (one,) = read(write(tmp_path, text))
    assert str(one) == "Ours 70.0, another 80.0. (rows: rows.jsonl; other.jsonl)"


def test_reasons_stand_below_the_numbers_they_explain(tmp_path: Path) -> None:
    reasons = read(write(tmp_path, GOOD.replace('text = "Why."', 'text = "A reason, tested."')))
    every = Evidence(Runs((Source("rows", "", tuple(grid(ten(0.9))), ()),)))
    text = pages(every, tmp_path, reasons=reasons)["results/cifar10-c.md"]
    assert "| bn | 70.00 | 79.56 | −9.56¹ |" in text
    assert "- ¹ bn (mean −9.56, mCE +7.35): A reason, tested." in text
    assert "- ² source (mean −6.47);" in text
    assert ": not explained" in text
