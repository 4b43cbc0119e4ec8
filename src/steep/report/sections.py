"""The parts of the page, each made of a table: leaderboard, figures, every number, settings, how to run it again."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from steep.report import claims, markup
from steep.report.figures import EXTRA, Figure, Record, memories
from steep.report.formats import entry, grid
from steep.report.markup import Html, el, join
from steep.report.paper import CLEAN
from steep.report.rerun import command, recipe
from steep.report.tables import ECE, MCE, MEAN, SMALLER_IS_BETTER, SPEED, Line, Table
from steep.report.words import MISSING, number, plain, signed

_NAMES = {MEAN: "mean accuracy", MCE: "mCE", ECE: "ECE", CLEAN: "clean accuracy", SPEED: "images/s"}
_SIGNS = {claims.HOLDS: "✓", claims.FAILS: "✗", claims.NOISE: "≈", claims.UNKNOWN: "?"}
_MOST_RECORDS = 200  # in a table below a figure; more are for the file beside the picture


def leaderboard(table: Table) -> Html:
    """Rank the methods; every column sorts, by mouse and by keyboard. A column that says nothing is left out."""
    columns = list(_board(table))
    heads = [_sorter(column.name, column.kind, column.first, column.now) for column in columns]
    lines = [[column.cell(line) for column in columns] for line in table.ranked()]
    name = f"Leaderboard, {table.title}: mean ± standard deviation over seeds"
    return markup.table(name, heads, lines, "board sortable")


@dataclass(frozen=True)
class _Column:
    """One column of the leaderboard: its heading, how it sorts, and its cell of a line."""

    name: str
    cell: Callable[[Line], Html]
    first: str = "descending"
    kind: str = "number"
    now: str | None = None


def _board(table: Table) -> Iterator[_Column]:
    yield _Column(
        "method", lambda line: el("th", line.name, scope="row", data_value=line.name.lower()), "ascending", "text"
    )
    for column in (c for c in (MEAN, MCE, ECE, CLEAN) if c in table.columns and table.has(c)):
        better = "ascending" if column in SMALLER_IS_BETTER else "descending"
        now = better if column == table.main_column else None
        yield _Column(_NAMES[column], functools.partial(_measure, table, column), better, now=now)
        if table.has_paper(column):
            yield _Column("paper", functools.partial(_paper, column, "paper", number), better)
            yield _Column("Δ", functools.partial(_paper, column, "difference", signed))
    if table.has(SPEED):
        yield _Column(_NAMES[SPEED], functools.partial(_measure, table, SPEED))
    if gib := memories(table):
        yield _Column(
            "GiB",
            lambda line: el("td", number(gib.get(line.name)), data_value=_sortable(gib.get(line.name))),
            "ascending",
        )
    if len({line.seeds for line in table.lines}) > 1 or table.lines[0].seeds > 1:
        yield _Column("seeds", lambda line: el("td", line.seeds, data_value=line.seeds))
    if len({line.predict for line in table.lines}) > 1:
        yield _Column("answers", lambda line: el("td", line.predict, data_value=line.predict), "ascending", "text")


def _measure(table: Table, column: str, line: Line) -> Html:
    best = "best" if line.name in table.best(column) else None
    return el("td", entry(line, column), class_=best, data_value=_sortable(line.mean(column)))


def _paper(column: str, what: str, write: Callable[[float | None], str], line: Line) -> Html:
    value: float | None = getattr(line.values[column], what)
    return el("td", write(value), class_="paper", data_value=_sortable(value))


def _sorter(name: str, kind: str, first: str, now: str | None) -> Html:
    button = el("button", name, el("span", class_="arrow", aria_hidden="true"), type="button")
    return el("th", button, scope="col", data_kind=kind, data_first=first, aria_sort=now or "none")


def _sortable(value: float | None) -> str:
    return "" if value is None or value != value else repr(value)


def numbers(table: Table) -> Html:
    """Show every number, with the paper's and the difference below ours."""
    head, *body = grid(table)
    rows = [
        [el("th", name.strip(), scope="row", class_="paper" if name.startswith("  ") else None), *cells]
        for name, *cells in body
    ]
    name = f"Every number: {table.title}"
    return el("details", el("summary", name), markup.table(name, head, rows, "numbers"))


def figure(made: Figure, identity: str, drawn: bool) -> Html:
    """Make the place of a chart: a script draws it there; its data stands below, for eyes and readers alike."""
    look = "chart white" if made.own_colours else "chart"
    place = el("div", class_=look, id=identity, role="img", aria_label=f"{made.title}. {made.caption}")
    heading, caption = el("h4", made.title), el("figcaption", made.caption)
    kind = "figure broad" if made.broad else "figure"
    tables = [_records(made.title, name, records) for name, records in made.tables.items()]
    return el("figure", heading, place if drawn else None, caption, *tables, class_=kind)


def _records(title: str, name: str, records: Sequence[Record]) -> Html:
    label = f"Data: {name}" if name else "Data"
    if len(records) > _MOST_RECORDS:
        return el(
            "p", f"{label}: {len(records):,} points; steep report RUN --figures FOLDER writes them.", class_="dim"
        )
    columns = list(dict.fromkeys(column for record in records for column in record))
    heads = [column.replace("_", " ") for column in columns]
    rows = [[el("td", _value(record.get(column))) for column in columns] for record in records]
    return el("details", el("summary", label), markup.table(f"{title}: data", heads, rows))


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else MISSING if value is None else plain(value)


def no_charts(why: str) -> Html:
    """Say why there are no charts, and what draws them."""
    return el("p", f"Charts are not drawn here: {why}. To have them: ", el("code", EXTRA), class_="note")


def claimed(table: Table) -> Html | None:
    """Hold the paper's claims against the rows; None where the rows allow none."""
    checked = claims.of(table)
    if not checked:
        return None
    rows = []
    for claim in checked:
        kind = "holds" if claim.verdict == claims.HOLDS else "fails"
        rows.append([claim.text, claim.here, el("td", f"{_SIGNS[claim.verdict]} {claim.verdict}", class_=kind)])
    return markup.table("The paper's claims of TEA, on these rows", ("claim", "on these rows", ""), rows, "claims")


def settings(table: Table) -> Html:
    """Show the protocol and every setting in full."""
    shown = {name: value for name, value in table.spec.items() if value not in (None, "")}
    origins = dict.fromkeys(
        plain(part.get("origin", "?")) for row in table.rows for part in row.get("data") or () if isinstance(part, dict)
    )
    spec = [el("div", el("dt", name.replace("_", " ")), el("dd", _text(value))) for name, value in shown.items()]
    heads = ("method", "setting", "answers", "steps", "episodic", "guard", "seeds", "hyper-parameters")
    lines = []
    for line in table.lines:
        hyper = (line.spec.get("hyper") or {}).items()
        pills = [el("span", f"{name} = {_text(value)}", class_="pill") for name, value in hyper]
        seeds = ", ".join(str(seed) for seed in sorted({row["spec"].get("seed", 0) for row in line.rows}))
        run = (_text(line.spec.get(name)) for name in ("steps", "episodic", "guard"))
        lines.append([line.name, line.setting, line.predict, *run, seeds, el("td", *pills, class_="pills")])
    images = el("details", el("summary", f"Where the images came from ({len(origins)})"),
                el("ul", *(el("li", origin) for origin in origins))) if origins else None  # fmt: skip
    whole = markup.table("Settings of every method", heads, lines, wide="settings")
    return join(el("dl", *spec, class_="spec"), whole, images)


def rerun(table: Table, number: int) -> Html:
    """Show how to run it again: the recipe and the command."""
    text = recipe(table)
    if text is None:
        return el("p", "These rows are of streams that are no grid; run the recipe they came from again.")
    weights = plain(table.spec.get("weights"))
    digest = table.spec.get("weights_sha256")
    needs = f"The weights are {weights}" + (f", sha256 {plain(digest)}." if digest else ".")
    return join(
        el("p", "Save this recipe as ", el("code", f"again-{number}.toml"), " and run the command. ", needs),
        el("pre", el("code", command(table, number)), tabindex="0", aria_label="command"),
        el(
            "details",
            el("summary", f"again-{number}.toml"),
            el("pre", el("code", text), tabindex="0", aria_label="recipe"),
        ),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
