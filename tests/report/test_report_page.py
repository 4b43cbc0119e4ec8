"""The page: the table's numbers and nobody else's words, in one file that asks for nothing."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from test_report_tables import one, paper_rows, row

from steep.bench.rows import encode
from steep.cli import main
from steep.report.formats import MISSING, grid
from steep.report.page import html
from steep.report.tables import build

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\n& \x1b[31m'


class Page(HTMLParser):
    """Collects the tags, their attributes and the text of every table cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data


def test_numbers_are_those_of_the_table() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.25)]
    rows += [row("tea", s, a, seed=i) for i in (0, 1, 2) for s, a in (("fog", 0.8 + i / 100), ("snow", 0.6))]
    table = one(rows)
    shown = Page(html([table])).rows
    assert shown == grid(table)


def test_what_is_missing_is_a_dash_and_nan_is_nan() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.5), row("tea", "fog", 0.9)]
    rows += [row("tent", name, math.nan, nonfinite=10, calibration=None) for name in ("fog", "snow")]
    table = one(rows)
    found = {line[0]: line[1:] for line in Page(html([table])).rows}
    assert found["tea"][:4] == [MISSING, "90.00", MISSING, MISSING]  # snow, fog, mean, mCE
    assert found["tent"][:5] == ["NaN"] * 5
    assert "0.00" not in found["tea"]


def test_the_papers_figure_and_the_difference_stand_beside_ours() -> None:
    table = one(paper_rows("source", 0.56) + paper_rows("tea", 0.80))
    head, _, tea = Page(html([table])).rows
    assert tea[head.index("fog")] == "80.00 (paper 87.61, Δ −7.61)"
    assert tea[head.index("mean")] == "80.00 (paper 83.34, Δ −3.34)"


def test_the_best_is_marked_and_the_smaller_mce_is_the_better() -> None:
    text = html([one([row("source", "fog", 0.5), row("tea", "fog", 0.8)])])
    assert re.search(r'<td class="best"[^>]*>80\.00', text)
    assert re.search(r'<td class="best"[^>]*>40\.00', text)  # mCE
    assert not re.search(r'<td class="best"[^>]*>100\.00', text)


@pytest.mark.parametrize("field", ["label", "weights", "data", "model", "protocol", "predict", "precision"])
def test_hostile_strings_of_a_row_stay_text(field: str) -> None:
    page = Page(html(build([row("tea", "fog", 0.8, **{field: HOSTILE})]), HOSTILE))
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert "<script>alert(1)</script>" in page.text  # as text
    assert "\x1b" not in page.text.replace(HOSTILE, "")


@pytest.mark.parametrize("where", ["shift", "note", "device", "segment"])
def test_hostile_strings_elsewhere_stay_text_too(where: str) -> None:
    more: dict[str, Any] = {
        "shift": {},
        "note": {"notes": [f"no Fisher {HOSTILE}"]},
        "device": {"env": {"device": HOSTILE, "commit": HOSTILE, "versions": {"steep": HOSTILE}}},
        "segment": {"segments": [{"name": HOSTILE, "severity": 5, "n": 10, "error": 0.5}], "protocol": "continual"},
    }[where]
    page = Page(html(build([row("tea", HOSTILE if where == "shift" else "fog", 0.8, **more)])))
    assert not {"script", "img"} & set(page.tags)
    assert "\x1b" not in page.text
    assert "alert(1)" in page.text


def test_the_page_asks_for_nothing_from_outside() -> None:
    text = html(build([row("source", "fog", 0.5), row("tea", "fog", 0.8)]))
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_report_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("source", "fog", 0.5), row("tea", "fog", 0.8)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    out = tmp_path / "new folder" / "page.html"
    assert main(["report", str(tmp_path), "--format", "html", "--out", str(out)]) == 0
    assert Page(out.read_text(encoding="utf-8")).rows == grid(one(rows))
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]
    capsys.readouterr()
    assert main(["report", str(tmp_path), "--format", "html"]) == 0
    assert capsys.readouterr().out == out.read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_bytes(encode(row("tea", "fog", 0.8)))
    (tmp_path / "page.html").mkdir()  # nothing can take this name
    assert main(["report", str(tmp_path), "--format", "html", "--out", str(tmp_path / "page.html")]) == 2
    told = capsys.readouterr().err
    assert "page.html" in told
    assert "Traceback" not in told
    assert {file.name for file in tmp_path.iterdir()} == {"page.html", "rows.jsonl"}
