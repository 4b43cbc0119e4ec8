"""Tables for the terminal: no wider than 80 columns, the best in bold, a verdict below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TypeAlias

from steep.report.formats import entry
from steep.report.paper import CLEAN
from steep.report.summary import headline
from steep.report.tables import ECE, MCE, SPEED, Table
from steep.report.words import number, signed

WIDTH = 80
Column: TypeAlias = tuple[list[str], list[int]]  # its texts, the name first, and which of them are best
_BOLD, _USUAL = "\x1b[1m", "\x1b[0m"
_GAP = "  "


def terminal(tables: Sequence[Table], *, colour: bool = False) -> str:
    """Write tables as aligned text; `colour` marks the best of each column for a terminal.

    A column that says nothing is left out, and so are single shifts where they do not fit.
    """
    return "\n\n".join(_table(table, colour) for table in tables) + "\n"


def _table(table: Table, colour: bool) -> str:
    names, *columns = _columns(table)
    shifts = [_column(table, shift) for shift in table.shifts]
    fits = _width([names, *shifts, *columns]) <= WIDTH
    shown = [names, *(shifts if fits or not columns else ()), *columns]
    while _width(shown) > WIDTH and len(shown) > 2:
        shown.pop()
    notes = [f"- {note}" for note in table.notes]
    if not fits and table.shifts:
        notes.append(f"- mean over {len(table.shifts)} shifts; each of them: --format markdown, csv or html")
    below = [line for note in notes for line in _wrapped(note, "  ")]
    return "\n".join([*_wrapped(table.title), *_lines(shown, colour), "", *_wrapped(headline(table)), *below])


def _columns(table: Table) -> list[Column]:
    """Give the columns that say something, the names first, without those of single shifts."""
    main, ranked = table.main_column, table.ranked()
    columns: list[Column] = [(["method", *(line.name for line in ranked)], []), _column(table, main)]
    if table.has_paper(main):
        values = [line.values[main] for line in ranked]
        columns.append((["paper", *(number(value.paper) for value in values)], []))
        columns.append((["Δ", *(signed(value.difference) for value in values)], []))
    others = (MCE, ECE, CLEAN, SPEED)
    columns += [_column(table, c) for c in others if c in table.columns and c != main and table.has(c)]
    if len({len(line.seeds) for line in table.lines}) > 1:
        columns.append((["seeds", *(str(len(line.seeds)) for line in ranked)], []))
    return columns


def _column(table: Table, column: str) -> Column:
    best, ranked = table.best(column), table.ranked()
    texts = [column.replace("_", " "), *(entry(line, column) for line in ranked)]
    return texts, [index for index, line in enumerate(ranked, 1) if line.name in best]


def _width(columns: Sequence[Column]) -> int:
    return sum(max(map(len, texts)) for texts, _ in columns) + len(_GAP) * (len(columns) - 1)


def _lines(columns: Sequence[Column], colour: bool) -> list[str]:
    widths = [max(map(len, texts)) for texts, _ in columns]
    lines = []
    for index in range(len(columns[0][0])):
        cells = []
        for place, ((texts, best), width) in enumerate(zip(columns, widths, strict=True)):
            text = texts[index].rjust(width) if place else texts[index].ljust(width)
            cells.append(f"{_BOLD}{text}{_USUAL}" if colour and index in best else text)
        lines.append(_GAP.join(cells).rstrip())
    return [lines[0], _GAP.join("─" * width for width in widths), *lines[1:]]


def _wrapped(text: str, indent: str = "") -> list[str]:
    joined = text.replace(" %", "\N{NO-BREAK SPACE}%")  # no line begins with a percent sign
    lines = textwrap.wrap(joined, WIDTH, subsequent_indent=indent)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
