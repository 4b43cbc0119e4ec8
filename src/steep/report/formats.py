"""Tables as text: for the terminal, Markdown, LaTeX (booktabs, best in bold) and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from steep.report.statistics import Spread
from steep.report.tables import SPEED, Line, Table, plain

MISSING = "–"

_SHORT = {
    "gaussian_noise": "gauss",
    "shot_noise": "shot",
    "impulse_noise": "impul",
    "defocus_blur": "defoc",
    "glass_blur": "glass",
    "motion_blur": "motio",
    "zoom_blur": "zoom",
    "brightness": "brigh",
    "contrast": "contr",
    "elastic_transform": "elast",
    "pixelate": "pixel",
    "jpeg_compression": "jpeg",
    "art_painting": "art",
}
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


def number(value: float | None, digits: int = 2) -> str:
    """Write a number; what is missing is a dash, never a zero.

    >>> number(83.337), number(None), number(math.nan)
    ('83.34', '–', 'NaN')
    """
    if value is None:
        return MISSING
    return "NaN" if math.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def spread(value: Spread | None, digits: int = 2) -> str:
    """Write mean ± deviation.

    >>> spread(Spread(83.337, 0.0512, 5)), spread(None)
    ('83.34 ± 0.05', '–')
    """
    if value is None:
        return MISSING
    return number(value.mean, digits) + (f" ± {number(value.sd, digits)}" if value.sd is not None else "")


def grid(table: Table, mark: Callable[[str], str] = str, *, short: bool = False) -> list[list[str]]:
    """Lay a table out: a header, and for each method its own line and, where there are figures, the paper's and Δ."""
    names = [_SHORT.get(c, c) if short else c for c in table.columns]
    best = {column: table.best(column) for column in table.columns}
    rows = [["method", *names, "seeds", "predicts"]]
    for line in table.lines:
        rows.append(
            [line.name, *(_entry(line, c, best[c], mark) for c in table.columns), str(line.seeds), line.predict]
        )
        if any(value.paper is not None for value in line.values.values()):
            rows.append(["  paper", *(_blank(line.values[c].paper) for c in table.columns), "", ""])
            rows.append(["  Δ", *(_signed(line.values[c].difference) for c in table.columns), "", ""])
    return rows


def entry(line: Line, column: str) -> str:
    """Write one number of a table."""
    ours = line.values[column].ours
    if column == SPEED:
        return MISSING if ours is None else f"{ours.mean:,.0f}"
    return spread(ours)


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
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    about = (
        *("data", "source", "model", "weights", "weights_sha256", "protocol", "delta", "batch_size"),
        *("size", "channels", "limit", "precision"),
    )
    run = ("steps", "episodic", "guard")
    numbers = ("mean", "sd", "n", "paper", "difference")
    write.writerow([*about, "severities", "method", "setting", "predict", *run, "hyper", "column", *numbers])
    for table in tables:
        for line in table.lines:
            for column in table.columns:
                value = line.values[column]
                ours = value.ours
                found = (ours.mean, ours.sd, ours.n) if ours else (None, None, None)
                write.writerow(
                    [
                        *(harmless(table.spec.get(name)) for name in about),
                        " ".join(map(str, table.severities)),
                        *(harmless(text) for text in (line.name, line.setting, line.predict)),
                        *(harmless(line.spec.get(name)) for name in run),
                        json.dumps(line.spec.get("hyper") or {}, sort_keys=True),
                        harmless(column),
                        *(_exact(n) for n in (*found, value.paper, value.difference)),
                    ]
                )
    return out.getvalue()


def terminal(tables: Sequence[Table]) -> str:
    """Write tables as aligned text."""
    parts = []
    for table in tables:
        rows = grid(table, short=True)
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [table.title, *(f"  {note}" for note in table.notes), ""]
        for index, row in enumerate(rows):
            cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
            lines.append("  ".join(cells).rstrip())
            if index == 0:
                lines.append("  ".join("─" * width for width in widths))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {
    "terminal": terminal,
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
}
"""The formats by name."""


def _entry(line: Line, column: str, best: frozenset[str], mark: Callable[[str], str]) -> str:
    text = entry(line, column)
    return mark(text) if line.name in best else text


def signed(value: float) -> str:
    """Write a difference with its sign.

    >>> signed(0.5), signed(-0.5), signed(-0.001)
    ('+0.50', '−0.50', '0.00')
    """
    value = round(value, 2) or 0.0  # no sign where no digit is left
    return ("+" if value > 0 else "") + number(value)


def _blank(value: float | None) -> str:
    return "" if value is None else number(value)


def _signed(value: float | None) -> str:
    return "" if value is None else signed(value)


def _exact(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else "NaN" if math.isnan(value) else repr(round(value, 6))


def harmless(value: Any) -> Any:
    """Keep a spreadsheet from taking text for a formula: such text gets an apostrophe before it.

    >>> harmless("=1+1"), harmless("tea"), harmless(5)
    ("'=1+1", 'tea', 5)
    """
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
