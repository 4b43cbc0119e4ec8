"""The site: built strictly and without a warning; every public name has its place; nothing leads or loads elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import steep
from reading import HOME
from test_docs_text import public

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


BROKEN = """() => [...document.querySelectorAll('table code, td[style*=right]')].flatMap(cell => {
    const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const broken = [];
    for (let text = walk.nextNode(), top = null, last = ' '; text; text = walk.nextNode()) {
        for (let i = 0; i < text.data.length; i++) {
            const range = document.createRange();
            range.setStart(text, i);
            range.setEnd(text, i + 1);
            const box = range.getBoundingClientRect();
            if (box.width && top !== null && box.top > top + 3 && last !== ' ') broken.push(cell.textContent);
            if (box.width) top = box.top;
            last = text.data[i].trim() || ' '; // one at the end of a line has no width
        }
    }
    return broken;
})"""
"""What a line of a table breaks inside a word."""


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
            assert page.evaluate(BROKEN) == [], file.name
    page.close()


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
