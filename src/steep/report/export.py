"""Every figure of some runs as files: pictures, and the records behind each as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from steep.report.charts.writing import as_csv, file_name, formats, free, put, render
from steep.report.figures import Figure, analysed, of
from steep.report.runs import Runs
from steep.report.tables import build
from steep.report.words import slug

PICTURES = "png,svg,pdf"


def write(runs: Runs, folder: Path, asked: str | None = None) -> Iterator[Path]:
    """Write every figure of some runs into a folder, one after the other, and name each file as it is done.

    Args:
        runs: as `runs.read` gives them.
        folder: made where it is not there.
        asked: such as `png,svg`; None is PICTURES. The CSV is always there.
    """
    makers = {kind: render(kind) for kind in formats(PICTURES if asked is None else asked)}
    taken: set[str] = set()
    for name, where, figure in _named(runs):
        name = free(name, taken)
        spec = {"title": {"text": figure.title, "subtitle": where, "anchor": "start"}, **figure.spec()}
        for kind, make in makers.items():
            yield put(folder / f"{name}.{kind}", make(spec))
        for table, records in figure.tables.items():
            file = f"{name}-{file_name(table)}.csv" if table else f"{name}.csv"
            yield put(folder / file, as_csv(records))


def _named(runs: Runs) -> Iterator[tuple[str, str, Figure]]:
    """Name every figure by what was measured and what it shows; say what was measured in words, too."""
    for table in build(runs.rows) if runs.rows else ():
        for figure in of(table):
            yield file_name(f"{slug(table.spec, table.severities)} {figure.name}"), table.title, figure
    for figure in analysed(runs.analyses):
        yield file_name(f"analysis {figure.name}"), "", figure
