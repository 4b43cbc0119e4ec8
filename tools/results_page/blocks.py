"""Pieces of Markdown that every page is made of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from steep.report.formats import in_markdown, pipes


def folded(title: str, body: str) -> str:
    """Fold something away below its title."""
    return f"<details markdown><summary>{in_markdown(title)}</summary>\n\n{body}\n\n</details>"


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Write a table of text, aligned left."""
    return pipes(rows, "---|")


def link(file: Path, home: Path) -> str:
    """Say how to get from a page's folder to a file."""
    return Path(os.path.relpath(file.resolve(), home.resolve())).as_posix()


class Footnotes:
    """Numbers footnotes and gives them all at the end of a page: digests, commits and files belong there."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}

    def mark(self, text: str) -> str:
        """Give the mark of a footnote; the same text has the same."""
        return f"[^{self._texts.setdefault(text, len(self._texts) + 1)}]"

    def block(self) -> str:
        """Give the footnotes."""
        return "\n".join(f"[^{number}]: {text}" for text, number in self._texts.items())
