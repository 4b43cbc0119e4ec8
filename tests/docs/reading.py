"""Read the project's Markdown: its pages, their code, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[2]
PAGES = sorted(
    [HOME / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "results/README.md")]
    + [*(HOME / "docs").glob("*.md"), *(HOME / "docs" / "results").glob("*.md"), *(HOME / ".github").rglob("*.md")]
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A piece of code and the line of the page it begins at."""

    language: str
    code: str
    line: int


def name(page: Path) -> str:
    return page.relative_to(HOME).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m["language"], m["code"], text[: m.start("code")].count("\n") + 1) for m in _FENCE.finditer(text)]


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"`[^`\n]+`", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub and mkdocs both write them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#{1,6} +(.+?)\s*$", text, flags=re.M)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", head.lower()).strip()) for head in heads}


def tables(page: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Every table: its heading and its rows."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for table in re.findall(r"(?:^\|.*\n?)+", text, flags=re.M):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        head, _, *body = rows
        yield head, body


def commands(page: Path) -> list[str]:
    """Every `steep …` a reader may type: whole lines of blocks, indented or fenced, and code within the prose."""
    lines = []
    for block in blocks(page):
        if block.language != "python":
            lines += re.findall(r"^(?:\$ )?(steep .+)$", re.sub(r"\\\n\s*", " ", block.code), flags=re.M)
    rest = _FENCE.sub("", page.read_text(encoding="utf-8"))
    lines += re.findall(r"^ {4}(steep .+)$", rest, flags=re.M)
    lines += re.findall(r"`(steep [^`\n]+)`", rest)
    return [re.split(r"\s{2,}|\s+#", command.strip())[0] for command in lines]  # what stands behind is a remark
