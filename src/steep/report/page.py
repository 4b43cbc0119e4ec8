"""One self-contained page: the tables, coloured by accuracy. It asks for nothing from outside."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from steep.report.formats import entry, number, signed
from steep.report.tables import SMALLER_IS_BETTER, SPEED, Line, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d7de; --dim: #57606a; --glow: 32 116 90; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #30363d; --dim: #9da7b3; --glow: 63 185 140; }
}
body { margin: 2rem auto; max-width: 75rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
td.best { font-weight: 700; }
.notes, .paper { color: var(--dim); font-size: .9rem; }
"""


def html(tables: Sequence[Table], title: str = "steep") -> str:
    """Write tables as a page for a browser, wide or narrow, light or dark, or for paper.

    >>> html([], "a <b> run").count("a &lt;b&gt; run")
    2
    """
    body = "\n".join(_section(table) for table in tables)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _section(table: Table) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("method", *table.columns, "seeds", "predicts"))
    best = {column: table.best(column) for column in table.columns}
    lines = "\n".join(_line(table, line, best) for line in table.lines)
    return (
        f'<section><h2>{escape(table.title)}</h2><ul class="notes">{notes}</ul>\n'
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead>\n<tbody>{lines}</tbody></table></div>'
        "</section>"
    )


def _line(table: Table, line: Line, best: dict[str, frozenset[str]]) -> str:
    cells = [f'<th scope="row">{escape(line.name)}</th>']
    for column in table.columns:
        value = line.values[column]
        text = escape(entry(line, column))
        if value.paper is not None:
            difference = "" if value.difference is None else f", Δ {signed(value.difference)}"
            text += f' <span class="paper">(paper {number(value.paper)}{difference})</span>'
        mark = ' class="best"' if line.name in best[column] else ""
        cells.append(f"<td{mark}{_glow(table, column, value.ours.mean if value.ours else None)}>{text}</td>")
    cells += [f"<td>{line.seeds}</td>", f"<td>{escape(str(line.predict))}</td>"]
    return f"<tr>{''.join(cells)}</tr>"


def _glow(table: Table, column: str, mean: float | None) -> str:
    """Colour a cell by where it lies between the worst and the best of its column; the number says the same."""
    known = [v.ours.mean for line in table.lines if (v := line.values[column]).ours is not None]
    known = [value for value in known if value == value]
    if mean is None or mean != mean or column == SPEED or not known or max(known) == min(known):
        return ""
    share = (mean - min(known)) / (max(known) - min(known))
    share = 1 - share if column in SMALLER_IS_BETTER else share
    return f' style="background: rgb(var(--glow) / {share * 0.45:.2f})"'
