"""The page in a real browser: it sorts, slides, tells, changes its theme, and runs and asks for nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from made_rows import row
from steep.bench.rows import encode
from steep.cli import main
from steep.methods import METHODS

SHIFTS = ("gaussian_noise", "fog", "contrast")
ERRORS = {"source": 0.5, "tent": 0.25, "tea": 0.125}
WIDTHS = (1280, 390)
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\"'><svg onload=window.hacked=3>"
)


def grid() -> list[dict[str, Any]]:
    """Errors that follow from severity, shift and method by a rule a reader can work out; tea has two seeds."""
    rows = []
    for method, error in ERRORS.items():
        for number, shift in enumerate(SHIFTS):
            for severity in (1, 3, 5):
                for seed in (0, 1) if method == "tea" else (0,):
                    wrong = error * severity / 5 + number / 100 + seed / 50
                    more = {"energy_before": -6.0, "energy_after": -7.0 - severity, "images_per_s": 1000.0 * error}
                    bars = {"counts": [0] * 5 + [10] * 5, "confidence": [0.0] * 5 + [0.55, 0.65, 0.75, 0.85, 0.95]}
                    more["reliability"] = {**bars, "accuracy": [0.0] * 5 + [0.5] * 5}
                    more["peak_memory"] = {"bytes": 2**30, "of": "tensors on the device"}
                    rows.append(row(method, shift, 1 - wrong, severity, seed, **more))
    return rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "rows.jsonl").write_bytes(b"".join(map(encode, grid())))
    assert main(["report", str(folder), "--format", "html", "--out", str(folder / "page.html")]) == 0
    return folder / "page.html"


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open a page, and hold it to silence: no word on the console, no error, no request but for the page itself."""
    contexts, heard = [], []

    def open_page(path: Path, width: int = 1280, scheme: str = "light") -> Any:
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("request", lambda request: heard.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-charts=drawn]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [line for line in heard if not line.startswith("data:image/png")] == []


def column(page: Any, index: int) -> list[str]:
    return (
        page.locator("table.board")
        .first.locator("tbody tr")
        .evaluate_all(f"rows => rows.map(row => row.cells[{index}].textContent)")
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_the_leaderboard_sorts_by_mouse_and_keyboard(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width)
    heads = page.locator("table.board").first.locator("thead th")
    assert column(page, 0) == ["tea", "tent", "source"]  # best first
    assert heads.nth(1).get_attribute("aria-sort") == "descending"
    heads.nth(1).locator("button").click()
    assert column(page, 0) == ["source", "tent", "tea"]
    assert [heads.nth(i).get_attribute("aria-sort") for i in (0, 1)] == ["none", "ascending"]
    heads.nth(0).locator("button").focus()
    page.keyboard.press("Enter")
    assert column(page, 0) == ["source", "tea", "tent"]
    assert heads.nth(0).get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert column(page, 0) == ["tent", "tea", "source"]
    assert "method, descending" in page.locator("#said").inner_text()


def shown(page: Any, method: str, shift: str) -> Any:
    lines = page.locator("table.heat tbody th").all_inner_texts()
    names = page.locator("table.heat thead th").evaluate_all("heads => heads.map(head => head.title)")
    return page.locator("table.heat tbody tr").nth(lines.index(method)).locator("td").nth(names.index(shift) - 1)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_slider_and_a_cell_pointed_at(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width)
    cell = shown(page, "tent", "fog")
    assert cell.inner_text() == "74.0"  # severity 5: an error of 0.25 + 0.01
    slider = page.locator("input.level")
    assert slider.get_attribute("aria-valuetext") == "5"
    slider.focus()
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "1"
    assert cell.inner_text() == "94.0"  # 0.25 / 5 + 0.01
    cell.hover()
    tip = page.locator("#tip")
    tip.wait_for(state="visible")
    assert tip.inner_text().split("\n") == ["tent · fog, severity 1", "94.00 %"]
    slider.focus()
    page.keyboard.press("End")
    assert page.locator(".control output").inner_text() == "all"
    assert cell.inner_text() == "84.0"  # the mean of 1, 3 and 5
    page.locator("select.mode").select_option("gain")
    assert cell.inner_text() == "15.0"  # (0.5 - 0.25) × 3 / 5
    cell.hover()
    tip.wait_for(state="visible")
    page.locator("h2").first.hover()
    tip.wait_for(state="hidden")


def test_cells_are_walked_by_keyboard_and_tell_the_spread(visit: Callable[..., Any], made: Path) -> None:
    page = visit(made)
    page.locator("table.heat td[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    focused = page.locator("table.heat td:focus")
    assert focused.get_attribute("aria-describedby") == "tip"
    # tea, fog, severity 5: errors 0.135 and 0.155 of two seeds
    assert page.locator("#tip").inner_text().split("\n") == ["tea · fog, severity 5", "85.50 ± 1.41 % over 2 seeds"]
    page.keyboard.press("Escape")
    page.locator("#tip").wait_for(state="hidden")


def test_every_mark_has_an_edge_on_the_dark_ground(visit: Callable[..., Any], made: Path) -> None:
    """Some colours of methods are too dark to be seen there, and stay the same as everywhere."""
    edges = "marks => marks.map(mark => getComputedStyle(mark).stroke)"
    marks = ".chart:not(.white) :is(.mark-symbol, .mark-rect) path:not([stroke])"
    dark = visit(made, 1280, "dark").locator(marks).evaluate_all(edges)
    light = visit(made, 1280, "light").locator(marks).evaluate_all(edges)
    assert len(dark) == len(light) > 20
    assert {brightness(edge) > 200 for edge in dark} == {True}
    assert set(light) == {"rgba(0, 0, 0, 0)"}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_headings_of_claims_stand_over_their_columns(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width)
    sides = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
    assert set(page.locator(".claims th, .claims td").evaluate_all(sides)) == {"left"}


@pytest.mark.parametrize("width", WIDTHS)
def test_headings_of_numbers_end_where_the_numbers_do(visit: Callable[..., Any], made: Path, width: int) -> None:
    """Of the column that is sorted by, too: its arrow stands before the name."""
    ends = """cells => cells.map(cell => {
        const range = document.createRange();
        const parts = [...(cell.querySelector('button') ?? cell).childNodes];
        range.selectNodeContents(parts.find(part => part.data?.trim()));
        const box = range.getBoundingClientRect();
        return [box.right, box.bottom].map(Math.round);
    })"""
    board = visit(made, width).locator("table.board").first
    heads, numbers = (board.locator(f"{row} > *:not(:first-child)").evaluate_all(ends)
                      for row in ("thead tr", "tbody tr:first-child"))  # fmt: skip
    assert len(heads) > 3
    assert [right for right, _ in heads] == [right for right, _ in numbers]
    assert len({bottom for _, bottom in heads}) == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_of_words_are_read_without_moving_them(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width)
    tables = page.locator("table.stacked")
    assert tables.count() == 2  # claims and settings
    for table in tables.all():
        assert table.evaluate("table => table.parentNode.scrollWidth - table.parentNode.clientWidth") == 0
        assert table.locator("tbody tr").first.bounding_box()["height"] < 150


@pytest.mark.parametrize("width", WIDTHS)
def test_the_theme_follows_the_system_until_somebody_chooses(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width, "dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
    button = page.locator("#theme")
    dark, dark_label = page.evaluate(ground), page.evaluate(label)
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    light, light_label = page.evaluate(ground), page.evaluate(label)
    assert button.get_attribute("aria-pressed") == "false"
    assert brightness(dark) < 60 < 200 < brightness(light)
    assert brightness(dark_label) > brightness(light_label)  # charts change too
    page.emulate_media(media="print")
    assert brightness(page.evaluate(ground)) == 255
    page.emulate_media(media="screen", color_scheme="light")
    button.click()
    page.emulate_media(media="print")
    assert brightness(page.evaluate(ground)) == 255  # paper is white, whatever was chosen
    assert brightness(page.evaluate(label)) < 128


def brightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.parametrize("width", WIDTHS)
def test_charts_are_drawn_and_nothing_sticks_out(visit: Callable[..., Any], made: Path, width: int) -> None:
    page = visit(made, width)
    places = page.locator(".chart")
    assert places.count() >= 5
    for place in places.all():
        assert place.locator("svg").count() == 1
        assert place.get_attribute("aria-label")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_long_names_of_a_legend_stay_on_a_phone(visit: Callable[..., Any], tmp_path: Path) -> None:
    rows = [
        row(method, "fog", 0.5, label=f"{method} mirrored", energy_before=-6.0, energy_after=-7.0) for method in METHODS
    ]
    (tmp_path / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    assert main(["report", str(tmp_path), "--format", "html"]) == 0
    page = visit(tmp_path / "report.html", 390)
    names = page.locator(".chart .role-legend-label text")
    assert names.count() >= len(METHODS)
    outside = (
        "texts => texts.filter(t => t.getBoundingClientRect().right > t.ownerSVGElement.getBoundingClientRect().right)"
    )
    assert names.evaluate_all(f"{outside}.length") == 0


def test_text_of_a_stranger_never_runs(visit: Callable[..., Any], tmp_path: Path) -> None:
    rows = grid()
    for each in rows:
        each["spec"] |= {"label": f"{each['spec']['method']} label{HOSTILE}", "weights": f"weights{HOSTILE}"}
        each["spec"] |= {"shift": each["spec"]["shift"] + HOSTILE, "hyper": {f"hyper{HOSTILE}": f"value{HOSTILE}"}}
        each["env"] = {"device": f"device{HOSTILE}", "commit": HOSTILE, "versions": {"steep": f"version{HOSTILE}"}}
        each["data"] = [{"origin": f"origin{HOSTILE}"}]
    run = tmp_path / f"folder{HOSTILE.replace('/', '')}"
    run.mkdir()
    (run / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--format", "html", "--title", f"title{HOSTILE}", "--out", str(out)]) == 0
    page = visit(out)
    page.locator("table.heat td").first.hover()
    page.locator("table.board thead button").first.click()
    page.locator(".chart .mark-symbol path").first.hover(force=True)
    page.locator("#vg-tooltip-element").wait_for(state="visible")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    text = page.evaluate("document.body.textContent")
    for where in ("label", "weights", "hyper", "value", "device", "version", "origin", "folder", "title"):
        assert f"{where}<" in text  # it is there, as text


def test_the_policy_forbids_what_is_slipped_in(chromium: Any, made: Path) -> None:
    context = chromium.new_context()
    page = context.new_page()
    fates: dict[str, str] = {}
    page.on("requestfailed", lambda request: fates.update({request.url: request.failure}))
    page.goto(made.as_uri())
    page.wait_for_selector("html[data-charts=drawn]")
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hacked = 1";
            document.body.append(script);
            const picture = document.createElement("img");
            picture.src = "https://example.invalid/a.png";
            document.body.append(picture);
            document.body.insertAdjacentHTML("beforeend", "<button id=b onclick='window.hacked=2'>x</button>");
            document.getElementById("b").click();
        }"""
    )
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("fetch('https://example.invalid/').then(() => 'sent', () => 'refused')") == "refused"
    context.close()
    assert fates == {"https://example.invalid/a.png": "csp"}  # stopped by the page itself, and the other before that
