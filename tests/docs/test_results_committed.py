"""docs/results.md is what the rows in results/ give; `make docs` makes it anew."""

from __future__ import annotations

import pytest

from reading import HOME
from steep.cli import main


def test_the_committed_page_is_what_the_rows_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HOME)
    monkeypatch.setattr("steep.report.plates.render", lambda form: lambda spec: b"")
    monkeypatch.setattr("steep.report.plates._small", bytes)
    monkeypatch.setattr("steep.report.plates.put", lambda path, content: path)  # drawing takes longest, and is tested
    # under its own name, so that links are the same, but not written
    made: list[str] = []
    monkeypatch.setattr("steep.cli.report._write", lambda text, out: made.append(text))
    told = "report results --format docs --title Results --explanations results/explanations.toml"
    assert main([*told.split(), "--figures", "docs/images/results", "--out", "docs/results.md"]) == 0
    committed = (HOME / "docs" / "results.md").read_text(encoding="utf-8")
    assert made == [committed], "rows or explanations have changed. Run: make docs"


def test_the_makefile_says_the_same() -> None:
    words = (HOME / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").split()
    told = "report results --format docs --title Results --explanations results/explanations.toml"
    told += " --figures docs/images/results --out docs/results.md"
    assert told in " ".join(words)
