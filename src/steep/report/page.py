"""One self-contained page of everything that was measured. It asks for nothing from outside, and may not.

Charts are drawn by one copy of Vega inside the page. A content security policy names the page's own scripts by their
digests, so nothing else runs and nothing leaves, whatever the rows say.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from steep.bench.rows import Row
from steep.report import heatmap, markup, sections
from steep.report import pictures as sample_pictures
from steep.report.charts import CHARTS
from steep.report.figures import Figure, analysed, of
from steep.report.markup import Html, data, el, join
from steep.report.runs import Source
from steep.report.summary import facts, facts_of_analyses, headline
from steep.report.tables import Table
from steep.report.words import plain
from steep.version import __version__


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

    Args:
        tables: as `tables.build` makes them.
        title: the page's.
        sources: the files the rows came from.
        analyses: flat rows of `steep analyze`, drawn by `report.charts`.
        notes: what a reader has to know about the runs as a whole.
        pictures: rows of example images, as (name, PNG in base64).

    >>> html([], "a <b> run").count("a &lt;b&gt; run")
    2
    """
    groups: list[list[Table]] = []
    for table in tables:
        if groups and groups[-1][0].spec == table.spec:
            groups[-1].append(table)
        else:
            groups.append([table])
    charts = _Charts()
    body = [_group(group, number, charts, alone=len(groups) == 1) for number, group in enumerate(groups, 1)]
    further = _analyses(analyses, charts)
    rows = [row for group in groups for row in group[0].rows]
    known = facts(rows) if rows else facts_of_analyses(analyses)
    links = [el("li", el("a", group[0].title, href=f"#part-{number}")) for number, group in enumerate(groups, 1)]
    links += [el("li", el("a", "Analyses", href="#analyses"))] if further else []
    main = el(
        "main",
        el("nav", el("ul", *links), aria_label="parts") if len(links) > 1 else None,
        *(el("p", note, class_="note") for note in notes),
        sample_pictures.strips(pictures),
        *body,
        further,
        _files(sources),
        id="main",
    )
    return _document(title, join(_header(title, groups, known), main, _footer()), charts)


class _Charts:
    """Collects what the page's script draws, and says why where nothing can be drawn."""

    def __init__(self) -> None:
        lacking = [name for name in ("altair", "vl_convert") if importlib.util.find_spec(name) is None]
        self.why = f"{' and '.join(lacking)} not installed" if lacking else None
        self.specs: dict[str, dict[str, Any]] = {}

    def place(self, figure: Figure) -> Html:
        identity = f"chart-{len(self.specs) + 1}"
        if self.why is None:
            spec = figure.spec()
            figure = _worded(figure, spec.pop("title", None))
            self.specs[identity] = spec
        return sections.figure(figure, identity, self.why is None)


def _worded(figure: Figure, title: Any) -> Figure:
    """Take a chart's own title and subtitle as the page's words: those wrap, and a screen reader finds them."""
    if not isinstance(title, dict):
        return figure
    subtitle = title.get("subtitle", [])
    caption = ". ".join([subtitle] if isinstance(subtitle, str) else subtitle) + "."
    return replace(figure, title=str(title.get("text", figure.title)), caption=caption)


def _group(group: Sequence[Table], number: int, charts: _Charts, *, alone: bool) -> Html:
    first = group[0]
    order = [line.name for line in first.ranked()]
    boards = [join(el("h4", table.title) if len(group) > 1 else None, sections.leaderboard(table)) for table in group]
    made = of(first) if len(group) == 1 else [*of(group[-1])[:1], *of(first)]
    figures = el("div", *(charts.place(figure) for figure in made), class_="figures")
    parts = {
        "Leaderboard": join(*boards),
        "Method by shift": heatmap.section(first, order, f"heat-{number}"),
        "Energy, calibration, speed and memory": join(sections.no_charts(charts.why) if charts.why else None, figures)
        if made
        else None,
        "The paper's claims": sections.claimed(first),
        "Every number": join(*(sections.numbers(table) for table in group)),
        "Protocol and settings": sections.settings(first),
        "Run it again": sections.rerun(first, number),
    }
    return el(
        "article",
        el("h2", first.title, id=f"part-{number}"),
        None if alone else el("p", headline(first), class_="lead"),  # then it is the page's own
        el("ul", *(el("li", note) for note in first.notes), class_="notes"),
        *(el("section", el("h3", name), content) for name, content in parts.items() if content is not None),
    )


def _analyses(analyses: Sequence[Row], charts: _Charts) -> Html | None:
    if not analyses:
        return None
    figures = analysed(analyses)
    drawn = el("div", *(charts.place(figure) for figure in figures), class_="figures")
    strange = sorted({plain(row["analysis"]) for row in analyses} - set(CHARTS))
    note = el("p", f"No chart here for: {', '.join(strange)}.", class_="note") if strange else None
    why = sections.no_charts(charts.why) if charts.why else None
    return el("article", el("h2", "Analyses", id="analyses"), note, why, drawn, sample_pictures.grids(analyses))


def _header(title: str, groups: Sequence[Sequence[Table]], known: dict[str, str]) -> Html:
    entries = [el("div", el("dt", name), el("dd", value)) for name, value in known.items()]
    return el(
        "header",
        el("p", el("span", "steep", class_="brand"), " test-time adaptation report", class_="kicker"),
        el("button", "dark", type="button", id="theme", aria_pressed="false", aria_label="dark theme"),
        el("h1", title),
        el("p", headline(groups[0][0]), class_="lead") if len(groups) == 1 else None,
        el("dl", *entries, class_="facts") if entries else None,
    )


def _files(sources: Sequence[Source]) -> Html | None:
    if not sources:
        return None
    rows = [[s.name, len(s.rows), len(s.analyses), el("code", s.sha256)] for s in sources]
    files = markup.table("Files of rows", ("run", "bench rows", "analysis rows", "sha256"), rows)
    return el("article", el("h2", "Files"), files)


def _footer() -> Html:
    return el("footer", f"Made from stored rows by steep {__version__}. This page loads nothing from outside.")


def _document(title: str, body: Html, charts: _Charts) -> str:
    style, script = _asset("page.css"), _asset("page.js")
    scripts = [*([vega()] if charts.specs else []), script]
    digests = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    only = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    policy = f"default-src 'none'; script-src {digests}; {only}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("title", title),
        Html(f"<style>{style}</style>"),
    )
    page = el(
        "body",
        el("a", "Skip to the results", href="#main", class_="skip"),
        body,
        el("div", id="tip", role="tooltip", hidden=True),
        el("div", id="said", class_="sr", role="status"),
        data("charts", charts.specs),
        *(Html(f"<script>{text}</script>") for text in scripts),
    )
    return f"<!doctype html>\n{el('html', head, page, lang='en')}\n"


def _asset(name: str) -> str:
    return (resources.files("steep.report") / "assets" / name).read_text(encoding="utf-8")


@functools.cache
def vega() -> str:
    """Give Vega, Vega-Lite and Vega-Embed as one script, as vl-convert carries them."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("Object.assign(window, { vegaEmbed });")
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
