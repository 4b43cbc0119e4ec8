"""One self-contained page of everything that was measured. It asks for nothing from outside, and may not.

Charts are drawn by one copy of Vega inside the page. A content security policy names the page's own scripts by their
digests, so nothing else runs and nothing leaves, whatever the rows say. The page itself is `assets/page.html`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

import jinja2
from markupsafe import Markup

from steep.bench.rows import Row
from steep.report import claims
from steep.report.charts import CHARTS
from steep.report.charts.samples import grids, is_png
from steep.report.figures import EXTRA, Figure, analysed, memories, of
from steep.report.formats import columns_of, entry, grid, spread
from steep.report.paper import CLEAN
from steep.report.rerun import command, recipe
from steep.report.runs import Source
from steep.report.summary import facts, headline
from steep.report.tables import ECE, MCE, MEAN, SMALLER_IS_BETTER, SPEED, Line, Table, by_severity
from steep.report.words import MISSING, number, plain, signed
from steep.version import __version__

_NAMES = {MEAN: "mean accuracy", MCE: "mCE", ECE: "ECE", CLEAN: "clean accuracy", SPEED: "images/s"}
_SIGNS = {claims.HOLDS: "✓", claims.FAILS: "✗", claims.NOISE: "≈", claims.UNKNOWN: "?"}
_MOST_RECORDS = 200  # in a table below a figure; more are for the file beside the picture
_POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
STEPS = 9  # of the colours of accuracies
SIDE = 4  # of the colours on either side of nothing gained
MODES = {
    "accuracy": "accuracy (%)",
    "gain": "gain over the source model (points)",
    "paper": "difference to the paper (points)",
}

Place: TypeAlias = tuple[Figure, str]  # a figure, and the id of the element it is drawn in


def html(
    tables: Sequence[Table],
    title: str = "steep",
    *,
    sources: Sequence[Source] = (),
    analyses: Sequence[Row] = (),
    notes: Sequence[str] = (),
    pictures: Sequence[tuple[str, str]] = (),
) -> str:
    """Write the page of some tables, for a browser, wide or narrow, light or dark, or for paper.

    `analyses` are flat rows of `steep analyze`, `pictures` rows of example images as (name, PNG in base64).

    >>> html([], "a <b> run").count("a &lt;b&gt; run")
    2
    """
    lacking = [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]
    specs: dict[str, Any] = {}
    groups = [_group(list(group), specs, not lacking) for _, group in itertools.groupby(tables, lambda t: t.spec)]
    further = _analyses(analyses, specs, not lacking) if analyses else None
    rows = [row for group in groups for row in group["tables"][0].rows]
    scripts = [*([vega()] if specs else []), _asset("page.js")]
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            groups=groups,
            analyses=further,
            facts=facts(rows, analyses),
            notes=notes,
            strips=[(name, png) for name, png in pictures if is_png(png)],
            sources=sources,
            lacking=" and ".join(lacking),
            specs=json.loads(json.dumps(specs), parse_constant=lambda name: None),  # JSON has no NaN
            style=_asset("page.css"),
            scripts=scripts,
            policy=_POLICY.format(" ".join(f"'sha256-{digest}'" for digest in digests)),
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    """Read the template. It escapes every value, and shows control characters as such."""
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        loader=jinja2.PackageLoader("steep.report", "assets"),
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.globals.update(
        extra=EXTRA, mode_names=MODES, most_records=_MOST_RECORDS, signs=_SIGNS, version=__version__
    )
    for function in (board, coded, columns_of, command, grid, headline, plain, recipe, settings_of, written):
        environment.globals[function.__name__] = function
    return environment


def _visible(value: Any) -> Any:
    """Keep letters and line ends; other control characters are shown as such, and None is nothing."""
    return value if isinstance(value, Markup) else "" if value is None else plain(value, keep="\n\t")


def _group(tables: Sequence[Table], specs: dict[str, Any], drawn: bool) -> dict[str, Any]:
    """Collect what the page shows of the tables of one measured thing."""
    first = tables[0]
    figures = of(first) if len(tables) == 1 else [*of(tables[-1])[:1], *of(first)]
    origins = dict.fromkeys(
        plain(part.get("origin", "?")) for row in first.rows for part in row.get("data") or () if isinstance(part, dict)
    )
    return {
        "tables": tables,
        "heat_map": heat_map(first),
        "figures": [_placed(figure, specs, drawn) for figure in figures],
        "claims": claims.of(first),
        "spec": {n.replace("_", " "): coded(v) for n, v in first.spec.items() if v not in (None, "")},
        "origins": list(origins),
    }


def _analyses(rows: Sequence[Row], specs: dict[str, Any], drawn: bool) -> dict[str, Any]:
    pictures, left_out = grids(rows)
    return {
        "figures": [_placed(figure, specs, drawn) for figure in analysed(rows)],
        "strange": sorted({plain(row["analysis"]) for row in rows} - set(CHARTS)),
        "grids": pictures,
        "left_out": left_out,
    }


def _placed(figure: Figure, specs: dict[str, Any], drawn: bool) -> Place:
    """Give a figure its place and, where it can be drawn, put what the page's script draws there into `specs`.

    A chart's own title and subtitle become the page's words: those wrap, and a screen reader finds them.
    """
    identity = f"chart-{len(specs) + 1}"
    if drawn:
        specs[identity] = spec = figure.spec()
        title = spec.pop("title", None)
        if isinstance(title, dict):
            figure = replace(figure, title=title["text"], caption=". ".join(title["subtitle"]) + ".")
    return figure, identity


@dataclass(frozen=True)
class _Column:
    """One column of a leaderboard: its heading, of each line (text, what it sorts by, class), and how it sorts."""

    name: str
    cells: Sequence[tuple[object, object, str]]
    first: str = "descending"
    kind: str = "number"
    now: str = "none"


def board(table: Table) -> list[_Column]:
    """Give the columns of the leaderboard, best line first; one that says nothing is left out."""
    lines = table.ranked()
    columns = [_Column("method", [(line.name, line.name.lower(), "") for line in lines], "ascending", "text")]
    for column in filter(table.has, _NAMES):
        best, values = table.best(column), [line.values[column] for line in lines]
        better = "ascending" if column in SMALLER_IS_BETTER else "descending"
        cells = [(entry(line, column), line.mean(column), "best" if line.name in best else "") for line in lines]
        columns.append(_Column(_NAMES[column], cells, better, now=better if column == table.main_column else "none"))
        if table.has_paper(column):
            columns.append(_Column("paper", [(number(value.paper), value.paper, "paper") for value in values], better))
            columns.append(_Column("Δ", [(signed(value.difference), value.difference, "paper") for value in values]))
    if gib := memories(table):
        cells = [(number(gib.get(line.name)), gib.get(line.name), "") for line in lines]
        columns.append(_Column("GiB", cells, "ascending"))
    if any(len(line.seeds) != 1 for line in lines):
        columns.append(_Column("seeds", [(len(line.seeds), len(line.seeds), "") for line in lines]))
    if len({line.predict for line in lines}) > 1:
        columns.append(_Column("answers", [(line.predict, line.predict, "") for line in lines], "ascending", "text"))
    return columns


def settings_of(table: Table) -> tuple[dict[str, str], list[str], list[list[str]]]:
    """Sort the settings: those that all lines share, and the names and values, line by line, of the others."""
    columns = {
        "setting": [line.setting for line in table.lines],
        "answers": [line.predict for line in table.lines],
        **{name: [coded(line.spec.get(name)) for line in table.lines] for name in ("steps", "episodic", "guard")},
        "seeds": [", ".join(map(str, line.seeds)) for line in table.lines],
    }
    shared = {name: values[0] for name, values in columns.items() if len(set(values)) == 1}
    others = {name: values for name, values in columns.items() if name not in shared}
    return (
        shared,
        list(others),
        [list(line) for line in zip(*others.values(), strict=True)] or [[] for _ in table.lines],
    )


class Cell(NamedTuple):
    """What a cell shows: its text, its class and, when pointed at, everything about it."""

    text: str
    mark: str
    more: str


def heat_map(table: Table) -> dict[str, Any]:
    """Make the heat map of one measured thing, the best line on top: for each mode and view of severities, cells."""
    views, order = by_severity(table), [line.name for line in table.ranked()]
    columns = [*([CLEAN] if CLEAN in table.columns else []), *table.shifts, *([MEAN] if table.shifts else [])]
    lines = [sorted(view.lines, key=lambda line: order.index(line.name)) for view in views]
    modes: dict[str, list[list[list[Cell]]]] = {}  # cells of each view, by line and column
    for mode in MODES:
        every = [_number(view, line, c, mode) for view in views for line in view.lines for c in columns]
        known = [value for value in every if value is not None]
        if known:
            numbers = [value for value in known if value == value] or [0.0]
            low, high = min(numbers), max(numbers)
            modes[mode] = [
                [[_cell(view, line, column, mode, low, high) for column in columns] for line in same]
                for view, same in zip(views, lines, strict=True)
            ]
    start = max(0, len(views) - 2)  # what is shown first: the most severe alone
    first = next(iter(modes.values()))[start] if modes else []
    labels = [str(view.severities[0]) if len(view.severities) == 1 else "all" for view in views]
    return {"columns": columns, "order": order, "labels": labels, "modes": modes, "start": start, "first": first}


def _cell(view: Table, line: Line, column: str, mode: str, low: float, high: float) -> Cell:
    value, entry = _number(view, line, column, mode), line.values[column]
    if value is None or entry.ours is None:
        return Cell(MISSING, "gap", "not run" if entry.ours is None else "nothing to compare with")
    if value != value:
        return Cell("NaN", "nan", "NaN: the answers were not finite")
    more = f"{spread(entry.ours)} %" + (f" over {entry.ours.n} seeds" if entry.ours.sd is not None else "")
    if mode == "gain":
        more += f", {signed(value)} points against the source model"
    if entry.paper is not None and entry.difference is not None:
        more += f"; paper {number(entry.paper)}, Δ {signed(entry.difference)}"
    if mode == "accuracy":
        # Squared: methods differ most where accuracy is high, and there the steps are finest.
        share = ((value - low) / (high - low)) ** 2 if high > low else 1.0
        return Cell(number(value, 1), f"s{min(STEPS - 1, int(share * STEPS))}", more)
    step = round(abs(value) / (max(abs(low), abs(high)) or 1.0) * SIDE)
    return Cell(number(value, 1), "z" if not step else f"{'p' if value > 0 else 'n'}{step}", more)


def _number(view: Table, line: Line, column: str, mode: str) -> float | None:
    value = line.values[column]
    if value.ours is None or mode == "accuracy":
        return None if value.ours is None else value.ours.mean
    if mode == "paper":
        return value.difference
    base = None if view.source is None else view.source.values[column].ours
    return None if base is None else value.ours.mean - base.mean


def written(value: object) -> str:
    """Write a value of a record."""
    return f"{value:.6g}" if isinstance(value, float) else MISSING if value is None else plain(value)


def coded(value: Any) -> str:
    """Write a value of a spec: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _asset(name: str) -> str:
    return (resources.files("steep.report") / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def vega() -> str:
    """Give Vega, Vega-Lite and Vega-Embed as one script, as vl-convert carries them."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("Object.assign(window, { vegaEmbed });")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
