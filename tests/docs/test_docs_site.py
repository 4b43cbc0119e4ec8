"""The site: built strictly and without a warning; every public name has its place; nothing leads or loads elsewhere."""

from __future__ import annotations

import functools
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from PIL import Image

import steep
from reading import HOME
from test_docs_text import public

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


BROKEN = """which => [...document.querySelectorAll(which)].flatMap(cell => {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const broken = [];
    for (let text = walk.nextNode(), top = null, last = ' '; text; text = walk.nextNode()) {
        for (let i = 0; i < text.data.length; i++) {
            const range = document.createRange();
            range.setStart(text, i);
            range.setEnd(text, i + 1);
            const box = range.getBoundingClientRect();
            if (box.width && top !== null && box.top > top + 3 && last !== ' ')
                broken.push(text.data.slice(0, i).split(/\\s/).pop() || last);
            if (box.width) top = box.top;
            last = text.data[i].trim() || ' '; // one at the end of a line has no width
        }
    }
    return broken;
})"""
"""What lines of some elements break inside a word: how the word begins."""


CUT = """() => [...document.querySelectorAll('pre > code')]
    .filter(code => code.scrollWidth > code.clientWidth).map(code => code.textContent)"""
"""What code is wider than its place."""


class Page(HTMLParser):
    """The ids of a page, what it loads and where it leads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values[key] for key in ("id", "name") if values.get(key)}
        for key in ("href", "src"):
            if values.get(key):
                outside = tag == "link" and values.get("rel") in ("canonical", "next", "prev")
                (self.loads if (tag, key) in LOADED and not outside else self.leads).append(values[key])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One build for all checks: it takes seconds."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site(site: Path) -> None:
    pages = {file: Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    assert len(pages) > 25
    every_link_leads_somewhere(pages, site)
    nothing_is_loaded_from_outside(pages, site)
    every_public_name_has_its_place(pages, site)
    for words in ("batch of one", "single image", "batch size 1"):
        search_finds(words, site)


def test_lists_of_the_first_page_are_lists(site: Path) -> None:
    """What GitHub takes for a list may be a paragraph to mkdocs."""
    text = (site / "index.html").read_text(encoding="utf-8")
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"<li>\s*(?:<p>)?<strong>", text)) == len(re.findall(r"^- \*\*", readme, flags=re.M)) > 10


@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(chromium: Any, site: Path, width: int) -> None:
    """Nothing sticks out, and no line of a table breaks inside a name or a number."""
    page = chromium.new_page(viewport={"width": width, "height": 900})
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width, file.name
        if file.parent.name != "api":  # code of other makers' tables
            assert page.evaluate(BROKEN, "table code, td[style*=right], td > strong") == [], file.name
            begun = page.evaluate(BROKEN, "td, th, p code, li code")
            assert [word for word in begun if re.match(r"CIFAR|Tiny|ImageNet|WRN|ResNet|--?[a-z]*$", word)] == []
        if width > 1000 and file.name in ("index.html", "start.html"):
            assert page.evaluate(CUT) == [], file.name
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_goes_on_has_a_shade(chromium: Any, site: Path, scheme: str) -> None:
    """Its last pixels are of another colour than the page, until one has moved to its end."""
    context = chromium.new_context(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    table = page.locator(".md-typeset__scrollwrap").first
    assert table.evaluate("one => one.scrollWidth > one.clientWidth")
    ends = []
    for place in (0, 10_000):
        table.evaluate(f"one => one.scrollLeft = {place}")
        picture = Image.open(io.BytesIO(table.screenshot())).convert("L")
        ends.append(picture.getpixel((picture.width - 1, 5)))
    assert abs(ends[0] - ends[1]) > 30
    context.close()


def test_the_search_finds_what_people_call_it(chromium: Any, site: Path) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = chromium.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator("input.md-search__input").fill("batch of one")
        first = page.locator(".md-search-result__item").first
        first.wait_for()
        assert "Small batches: a batch of one" in first.inner_text()
        page.close()
        server.shutdown()


def every_link_leads_somewhere(pages: dict[Path, Page], site: Path) -> None:
    for file, page in pages.items():
        for link in (*page.leads, *page.loads):
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https" or link.startswith(("data:", "javascript:")), link
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.is_relative_to(site), f"{file.name}: {link}"
            assert target.is_file() or (target / "index.html").is_file(), f"{file.name}: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{file.name}: {link}"


def nothing_is_loaded_from_outside(pages: dict[Path, Page], site: Path) -> None:
    for file, page in pages.items():
        assert not [link for link in page.loads if urlsplit(link).scheme in ("http", "https")], file.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def every_public_name_has_its_place(pages: dict[Path, Page], site: Path) -> None:
    packed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]  # four lines of heading, then zlib
    listed = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}
    modules = {f"steep.{name}" for name in steep.__all__ if type(getattr(steep, name)).__name__ == "module"}
    anchors = set().union(*(page.ids for page in pages.values()))
    for module, name in public():
        full = f"{module}.{name}"
        if full in modules or (site / "api" / f"{name}.html").is_file():
            assert (site / "api" / f"{name}.html").is_file()
        else:
            assert full in listed, full
            assert full in anchors, full


def search_finds(words: str, site: Path) -> None:
    """Some page holds these words, as the search index has them."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any(words in entry["text"].lower() for entry in index["docs"]), words
