"""Every figure as files: pictures, and the records behind each as CSV."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from steep.bench.rows import Row
from steep.errors import check_known, optional
from steep.files import write_bytes
from steep.report.charts.style import altair, titled
from steep.report.figures import Figure, analysed, of
from steep.report.formats import records_as_csv
from steep.report.runs import Runs
from steep.report.tables import build
from steep.report.words import slug

PICTURES = ("png", "svg", "pdf")
Named: TypeAlias = tuple[str, str, Figure]  # name of its files, what was measured, the figure

FORMATS = ("png", "svg", "pdf", "html", "json")
"""What a figure can be written as; json is Vega-Lite."""


def formats(text: str) -> list[str]:
    """Read such as `png,svg`."""
    asked = [word.strip() for word in text.split(",") if word.strip()]
    check_known("format of a figure", FORMATS, *asked)
    return asked


def write(runs: Runs, folder: Path, kinds: Sequence[str] = PICTURES) -> Iterator[Path]:
    """Write every figure of some runs into a folder, one after the other, and name each file as it is done."""
    tables = build(runs.rows) if runs.rows else []
    benches = [(slug(t.spec, t.severities), t.title, figure) for t in tables for figure in of(t)]
    analyses = [("analysis", "", figure) for figure in analysed(runs.analyses)]
    named = [(f"{name} {figure.name}", where, figure) for name, where, figure in (*benches, *analyses)]
    return _write(named, folder, kinds)


def write_analysis(rows: Sequence[Row], folder: Path, kinds: Sequence[str]) -> list[Path]:
    """Write every figure of an analysis; one alone goes by the name of the analysis."""
    figures = analysed(rows)
    alone = len(figures) == 1
    return list(_write([(str(rows[0]["analysis"]) if alone else f.name, "", f) for f in figures], folder, kinds))


def _write(figures: Iterable[Named], folder: Path, kinds: Sequence[str]) -> Iterator[Path]:
    """Write figures, the records of each first: they need no charting library."""
    makers = {kind: render(kind) for kind in kinds}
    taken: set[str] = set()
    for words, where, figure in figures:
        name = free(file_name(words), taken)
        for table, records in figure.tables.items():
            path = folder / (f"{name}-{file_name(table)}.csv" if table else f"{name}.csv")
            yield write_bytes(path, records_as_csv(records).encode())
        if makers:
            spec = titled(figure.spec(), figure.title, where)
            for kind, make in makers.items():
                yield write_bytes(folder / f"{name}.{kind}", make(spec))


def render(form: str) -> Callable[[dict[str, Any]], bytes]:
    """Give what turns Vega-Lite into the bytes of a file."""
    if form == "json":
        return lambda spec: json.dumps(spec).encode()
    altair()
    make = getattr(optional("vl_convert", "report"), f"vegalite_to_{form}")
    options: dict[str, dict[str, Any]] = {"png": {"scale": 2}, "html": {"bundle": True}}  # bundled: works offline

    def rendered(spec: dict[str, Any]) -> bytes:
        content: str | bytes = make(spec, **options.get(form, {}))
        return content.encode() if isinstance(content, str) else content

    return rendered


def file_name(text: str) -> str:
    """Make a name that every file system takes, whatever a row says."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:120] or "figure"


def free(name: str, taken: set[str]) -> str:
    """Give a name that no other figure has: two may differ in what their title does not say."""
    chosen, count = name, 1
    while chosen.lower() in taken:
        count += 1
        chosen = f"{name}-{count}"
    taken.add(chosen.lower())
    return chosen
