"""The page: numbers of the rows and nobody else's words, in one file that asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import itertools
import json
import math
import re
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from test_report_tables import one, paper_rows

from made_rows import row
from steep.bench.rows import encode
from steep.cli import main
from steep.report import page as page_module
from steep.report.formats import MISSING, grid
from steep.report.page import html
from steep.report.tables import build

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\n& \x1b[31m'
SRC = Path(__file__).parents[2] / "src"


class Page(HTMLParser):
    """Collects tags, attributes, text, the cells of every table by its class, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.scripts: dict[str, str] = {}
        self.text = self._in = self._script = self._table = ""
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append(tag)
        self.attributes += attrs
        self._in = tag if tag in ("script", "style") else ""
        if tag == "script":
            self._script = attributes.get("id") or f"script {len(self.scripts)}"
            self.scripts[self._script] = ""
        if tag == "table":
            self._table = (attributes.get("class") or "other").split()[0]
            self.tables.setdefault(self._table, [])
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self._cell = True
            self.tables[self._table][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell &= tag not in ("td", "th")
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[self._script] += data
        elif self._in != "style":
            self.text += data
            if self._cell:
                self.tables[self._table][-1][-1] += data


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Vega itself out: these tests read what is ours. The browser's tests take it in."""
    monkeypatch.setattr(page_module, "vega", lambda: "/* vega */")


def test_every_number_is_that_of_the_table() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.25)]
    rows += [row("tea", s, a, seed=i) for i in (0, 1, 2) for s, a in (("fog", 0.8 + i / 100), ("snow", 0.6))]
    table = one(rows)
    assert Page(html([table])).tables["numbers"] == [[cell.strip() for cell in line] for line in grid(table)]
    board = {line[0]: line[1:] for line in Page(html([table])).tables["board"]}
    assert board["tea"][0] == "70.50 ± 0.50"  # seeds: 70, 70.5, 71


def test_what_is_missing_is_a_dash_and_nan_is_nan() -> None:
    rows = [row("source", "fog", 0.5), row("source", "snow", 0.5), row("tea", "fog", 0.9)]
    rows += [row("tent", name, math.nan, nonfinite=10, calibration=None) for name in ("fog", "snow")]
    page = Page(html([one(rows)]))
    heat = {line[0]: line[1:] for line in page.tables["heat"]}
    assert heat["tea"] == [MISSING, "90.0", MISSING]  # snow, fog, mean
    assert heat["tent"] == ["NaN"] * 3
    board = {line[0]: line[1:3] for line in page.tables["board"]}
    assert board == {
        "method": ["mean accuracy", "mCE"],
        "source": ["50.00", "100.00"],
        "tea": [MISSING, MISSING],
        "tent": ["NaN", "NaN"],
    }
    assert [line[0] for line in page.tables["board"]] == ["method", "source", "tea", "tent"]  # what is known first
    assert "2 places are empty (–)" in page.text
    assert "not finished: tea" in page.text
    assert "2 cells answered with NaN" in page.text
    assert "0.0" not in [*heat["tea"], *heat["tent"]]


def test_the_papers_figure_and_the_difference_stand_beside_ours() -> None:
    page = Page(html([one(paper_rows("source", 0.56) + paper_rows("tea", 0.80))]))
    head, tea, _ = page.tables["board"]
    assert head[:4] == ["method", "mean accuracy", "paper", "Δ"]
    assert tea[:4] == ["tea", "80.00", "83.34", "−3.34"]
    shown = json.loads(page.scripts["heat-1-data"])["modes"]
    fog = page.tables["heat"][0].index("fog") - 1
    text, mark, more = shown["paper"][0][0][fog]
    assert (text, mark[0], more) == ("−7.6", "n", "80.00 %; paper 87.61, Δ −7.61")
    assert shown["gain"][0][0][fog][0] == "24.0"


def test_settings_that_all_lines_share_are_said_once() -> None:
    rows = [
        row("source", "fog", 0.5),
        row("tea", "fog", 0.8, predict="after"),
        row("tea", "fog", 0.7, 5, 1, predict="after"),
    ]
    page = Page(html([one(rows)]))
    assert page.tables["stacked"] == [
        ["method", "answers", "seeds", "hyper-parameters"],
        ["source", "before", "0", ""],
        ["tea", "after", "0, 1", ""],
    ]
    assert re.search(r"guard\s*off", page.text)
    shared = Page(html([one(rows[:1])]))
    assert shared.tables["stacked"] == [["method", "hyper-parameters"], ["source", ""]]
    assert re.search(r"answers\s*before", shared.text)


def test_hostile_strings_of_a_row_stay_text() -> None:
    fields = ("label", "weights", "data", "model", "protocol", "predict", "precision", "setting")
    for field in fields:
        page = Page(html(build([row("tea", "fog", 0.8, **{field: f"{field}{HOSTILE}"})]), HOSTILE))
        _harmless(page)
        assert f'{field}"><script>alert(1)</script>' in page.text  # as text


@pytest.mark.parametrize("where", ["shift", "note", "device", "segment", "origin"])
def test_hostile_strings_elsewhere_stay_text_too(where: str) -> None:
    more: dict[str, Any] = {
        "shift": {},
        "note": {"notes": [f"a note {HOSTILE}"]},
        "device": {"env": {"device": HOSTILE, "commit": HOSTILE, "versions": {"steep": HOSTILE}}},
        "segment": {"segments": [{"name": HOSTILE, "severity": 5, "n": 10, "error": 0.5}], "protocol": "continual"},
        "origin": {},
    }[where]
    hostile = row("tea", HOSTILE if where == "shift" else "fog", 0.8, **more)
    if where == "origin":
        hostile |= {"data": [{"origin": HOSTILE}], "finished": HOSTILE}
    page = Page(html(build([hostile])))
    _harmless(page)
    assert "alert(1)" in page.text


def _harmless(page: Page) -> None:
    assert page.tags.count("script") == 4  # the data of the heat map and of charts, Vega, ours
    assert not {"img", "iframe", "object", "link", "base", "form"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "action")]
    assert {value[:1] for name, value in page.attributes if name == "href" and value} == {"#"}
    assert "\x1b" not in page.text


def test_the_policy_names_the_pages_own_scripts_and_nothing_else() -> None:
    text = html(build([row("source", "fog", 0.5), row("tea", "fog", 0.8)]))
    page = Page(text)
    (policy,) = [value for name, value in page.attributes if name == "content" and value and "default-src" in value]
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    run = [source for name, source in page.scripts.items() if name.startswith("script ")]
    digests = [base64.b64encode(hashlib.sha256(source.encode()).digest()).decode() for source in run]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert "unsafe-eval" not in policy
    assert "url(" not in text
    assert "@import" not in text


def test_without_altair_the_tables_still_come(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "altair" else find_spec(name))
    monkeypatch.setitem(sys.modules, "altair", None)  # importing it now fails
    page = Page(html(build([row("source", "fog", 0.5, energy_before=-1.0, energy_after=-2.0), row("tea", "fog", 0.8)])))
    assert [line[0] for line in page.tables["heat"]] == ["method", "tea", "source"]
    assert "altair not installed" in page.text
    assert "pip install '.[report]'" in page.text
    assert not any("vega" in source for source in page.scripts.values() if "vegaEmbed" not in source)


def test_five_thousand_rows_make_a_page_of_less_than_five_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # with Vega
    from steep.report.paper import benchmark

    methods = ("source", "bn", "dua", "pl", "shot", "tent", "eta", "eata", "sar", "tea")
    bars = {"counts": [10] * 10, "confidence": [0.5] * 10, "accuracy": [0.5] * 10}
    more = {"energy_before": -5.0, "energy_after": -6.0, "reliability": bars}
    every = itertools.product(enumerate(methods), benchmark(), range(1, 6), range(7))
    rows = [row(m, shift, 0.9 - i / 50 - level / 10, level, s, **more) for (i, m), shift, level, s in every]
    assert len(rows) >= 5000
    text = html(build(rows))
    assert 900_000 < len(text.encode()) < 5_000_000
    assert Page(text).tags.count("script") == 4  # one Vega for all charts


def test_report_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("source", "fog", 0.5), row("tea", "fog", 0.8)]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    out = tmp_path / "new folder" / "page.html"
    assert main(["report", str(tmp_path), "--format", "html", "--out", str(out)]) == 0
    assert Page(out.read_text(encoding="utf-8")).tables["board"][1][:2] == ["tea", "80.00"]
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]
    assert Path(capsys.readouterr().out.strip()) == out
    assert main(["report", str(tmp_path), "--format", "html"]) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "report.html"
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == out.read_text(encoding="utf-8")
    (tmp_path / "rows.jsonl").rename(tmp_path / "night.jsonl")
    assert main(["report", str(tmp_path / "night.jsonl"), "--format", "html"]) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "night.html"


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_bytes(encode(row("tea", "fog", 0.8)))
    (tmp_path / "page.html").mkdir()  # nothing can take this name
    assert main(["report", str(tmp_path), "--format", "html", "--out", str(tmp_path / "page.html")]) == 2
    errors = capsys.readouterr().err
    assert "page.html" in errors
    assert "Traceback" not in errors
    assert {file.name for file in tmp_path.iterdir()} == {"page.html", "rows.jsonl"}


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_text_has_contrast_in_both_themes() -> None:
    style = (resources.files("steep.report") / "assets" / "page.css").read_text(encoding="utf-8")
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", style))
    colours = {name: pair.split(", ") for name, pair in pairs.items()}
    on = [(f"s{i}", f"k{i}") for i in range(9)]
    on += [(side + n, "deep" if n in "34" else "pale") for side in "np" for n in "1234"] + [("z", "pale")]
    on += [(ground, ink) for ground in ("paper", "card", "soft") for ink in ("ink", "dim", "accent")]
    on += [
        ("warn-soft", "warn"),
        ("card", "warn"),
        ("hatch", "dim"),
        ("ink", "paper"),
    ]
    for theme in (0, 1):
        for ground, ink in on:
            light, dark = sorted((_luminance(colours[name][theme]) for name in (ground, ink)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, ink, theme)
    for mark, ink in on[:18]:  # and the classes do use them
        assert f".{mark} {{ background: var(--{mark}); color: var(--{ink}); }}" in style
