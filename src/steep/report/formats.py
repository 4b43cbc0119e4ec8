"""Tables as text: for the terminal, Markdown, LaTeX (booktabs, best in bold) and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from steep.metrics import SeedSummary
from steep.report.paper import CLEAN
from steep.report.summary import headline
from steep.report.tables import ECE, GROUP, MCE, SPEED, Line, Table
from steep.report.words import MISSING, number, plain, signed

WIDTH = 80  # of a terminal
Column: TypeAlias = tuple[list[str], list[int]]  # its texts, the name first, and which of them are best
_BOLD, _USUAL = "\x1b[1m", "\x1b[0m"
_GAP = "  "

_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "−": "$-$",
}

_MARKDOWN = {"&": "&amp;", "<": "&lt;", **{letter: "\\" + letter for letter in "\\`*_|[]"}}


def spread(value: SeedSummary | None, digits: int = 2) -> str:
    """Write mean ± deviation over seeds."""
    if value is None:
        return MISSING
    return number(value.mean, digits) + (f" ± {number(value.sd, digits)}" if value.sd is not None else "")


def without_empty(rows: Sequence[Sequence[str]], keep: Sequence[str] = ()) -> list[list[str]]:
    """Leave out the columns that say nothing: in which no row below the heading has anything.

    Those of `keep` stay: that a shift has not run says something.

    >>> without_empty([["method", "mean", "images/s"], ["tea", "85.00", "–"]])
    [['method', 'mean'], ['tea', '85.00']]
    """
    head, *body = rows
    kept = [name in keep or any(row[i].strip() not in ("", MISSING) for row in body) for i, name in enumerate(head)]
    return [[cell for cell, shown in zip(row, kept, strict=True) if shown] for row in rows]


def grid(table: Table, mark: Callable[[str], str] = str) -> list[list[str]]:
    """Lay a table out: a header, and for each method its line and, where there are figures, the paper's and Δ.

    A column that says nothing is left out.
    """
    columns = table.columns
    best = {column: table.best(column) for column in columns}
    rows = [["method", *columns, "seeds", "predicts"]]
    for line in table.lines:
        texts = {column: entry(line, column) for column in columns}
        numbers = [mark(texts[c]) if line.name in best[c] else texts[c] for c in columns]
        rows.append([line.name, *numbers, str(len(line.seeds)), line.predict])
        if any(value.paper is not None for value in line.values.values()):
            values = [line.values[column] for column in columns]
            rows.append(["  paper", *("" if v.paper is None else number(v.paper) for v in values), "", ""])
            rows.append(["  Δ", *("" if v.difference is None else signed(v.difference) for v in values), "", ""])
    return without_empty(rows, keep=table.shifts)


def entry(line: Line, column: str) -> str:
    """Write one number of a table."""
    ours = line.values[column].ours
    if column == SPEED:
        return MISSING if ours is None else f"{ours.mean:,.0f}"
    return spread(ours)


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


def markdown(tables: Sequence[Table]) -> str:
    """Write tables as Markdown."""
    parts = []
    for table in tables:
        lines = [f"### {in_markdown(table.title)}", "", *(f"- {in_markdown(note)}" for note in table.notes), ""]
        parts.append("\n".join([*lines, pipes(grid(table, bold))]))
    return "\n\n".join(parts) + "\n"


def pipes(rows: Sequence[Sequence[str]], rule: str = "---:|") -> str:
    """Write a header and rows as a table of Markdown; what is `bold` becomes so, everything else is text.

    >>> print(pipes([["method", "mean"], ["a|b", bold("1.00")]]))
    | method | mean |
    |---|---:|
    | a\\|b | **1.00** |
    """
    head, *body = rows
    lines = ["| " + " | ".join(map(in_markdown, head)) + " |", "|---|" + rule * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(in_markdown(cell.strip()) for cell in row) + " |" for row in body)])


def latex(tables: Sequence[Table]) -> str:
    """Write tables for LaTeX's booktabs; the best of every column is bold."""
    parts = []
    for table in tables:
        head, *body = grid(table, bold)
        lines = [f"% {note}" for note in (table.title, *table.notes)]
        lines += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule"]
        lines += [" & ".join(map(_tex, head)) + r" \\", r"\midrule"]
        for row in body:
            indent = r"\quad " if row[0].startswith("  ") else ""
            lines.append(indent + " & ".join(_tex(cell.strip()) for cell in row) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join(parts) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """Write tables in long form: one line for each number, with everything that says what it is."""
    records = []
    for table in tables:
        about = {name: table.spec.get(name) for name in GROUP}
        about["severities"] = " ".join(map(str, table.severities))
        for line in table.lines:
            names = {"method": line.name, "setting": line.setting, "predict": line.predict}
            run = {name: line.spec.get(name) for name in ("steps", "episodic", "guard")}
            hyper = json.dumps(line.spec.get("hyper") or {}, sort_keys=True)
            for column in table.columns:
                value = line.values[column]
                ours = vars(value.ours) if value.ours else {}
                numbers = {**{n: ours.get(n) for n in ("mean", "sd", "n")}, "paper": value.paper}
                numbers["difference"] = value.difference
                exact = {name: _exact(number) for name, number in numbers.items()}
                records.append({**about, **names, **run, "hyper": hyper, "column": column, **exact})
    return records_as_csv(records)


def columns_of(records: Sequence[dict[str, Any]]) -> list[str]:
    """Name everything that some record says."""
    return list(dict.fromkeys(name for record in records for name in record))


def records_as_csv(records: Sequence[dict[str, Any]]) -> str:
    """Write records as CSV: one column for each name, text kept from being taken for a formula.

    >>> records_as_csv([{"method": "=tea", "gain": 1.5}])
    "method,gain\\n'=tea,1.5\\n"
    """
    out = io.StringIO()
    lines = csv.DictWriter(out, columns_of(records), lineterminator="\n")
    lines.writeheader()
    lines.writerows({name: harmless(value) for name, value in record.items()} for record in records)
    return out.getvalue()


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {"markdown": markdown, "latex": latex, "csv": as_csv}
"""The formats by name."""


def _exact(value: float | None) -> float | str | None:
    return value if value is None or isinstance(value, int) else "NaN" if math.isnan(value) else round(value, 6)


def harmless(value: Any) -> Any:
    """Keep a spreadsheet from taking text for a formula: such text gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def bold(text: str) -> str:
    """Mark text as bold, for a format to write as it does."""
    return f"\x00{text}\x01"  # control characters, which text from a row cannot hold; replaced after escaping


def in_markdown(text: str) -> str:
    """Write text so that Markdown shows it as it is; only what is `bold` is more.

    >>> in_markdown("a_b <i>"), in_markdown(bold("x"))
    ('a\\\\_b &lt;i>', '**x**')
    """
    escaped = "".join(_MARKDOWN.get(letter, letter) for letter in text)
    return escaped.replace("\x00", "**").replace("\x01", "**")


def _tex(text: str) -> str:
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return escaped.replace("\x00", r"\textbf{").replace("\x01", "}")
