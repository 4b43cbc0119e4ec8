"""Figures as files: PNG, SVG and PDF, and the records behind each as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from steep.errors import InputError, unknown
from steep.files import writing
from steep.report.figures import EXTRA, Figure, Record, analysed, of
from steep.report.formats import harmless
from steep.report.runs import Runs
from steep.report.tables import build

PICTURES = ("png", "svg", "pdf")


def write(runs: Runs, folder: Path, formats: str | None = None) -> Iterator[Path]:
    """Write every figure of some runs into a folder, one after the other, and name each file as it is done.

    Args:
        runs: as `runs.read` gives them.
        folder: made where it is not there.
        formats: such as `png,svg`; None is all three. The CSV is always there.
    """
    kinds = PICTURES if formats is None else tuple(word.strip() for word in formats.split(",") if word.strip())
    for kind in kinds:
        if kind not in PICTURES:
            raise unknown("format of figures", kind, PICTURES)
    makers = _makers()
    taken: set[str] = set()
    for name, where, figure in _named(runs):
        name = _free(name, taken)
        spec = {"title": {"text": figure.title, "subtitle": where, "anchor": "start"}, **figure.spec()}
        for kind in kinds:
            yield _put(folder / f"{name}.{kind}", makers[kind](spec))
        for table, records in figure.tables.items():
            file = f"{name}-{_file_name(table)}.csv" if table else f"{name}.csv"
            yield _put(folder / file, as_csv(records).encode())


def as_csv(records: Sequence[Record]) -> str:
    """Write records as CSV: one column for each name, text kept from being taken for a formula.

    >>> as_csv([{"method": "=tea", "gain": 1.5}])
    "method,gain\\n'=tea,1.5\\n"
    """
    columns = list(dict.fromkeys(name for record in records for name in record))
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([harmless(record.get(name)) for name in columns] for record in records)
    return out.getvalue()


def _named(runs: Runs) -> Iterator[tuple[str, str, Figure]]:
    """Name every figure by what was measured and what it shows; say what was measured in words, too."""
    for table in build(runs.rows) if runs.rows else ():
        where = table.title.replace("severity ", "s")
        for figure in of(table):
            yield _file_name(f"{where} {figure.name}"), table.title, figure
    for figure in analysed(runs.analyses):
        yield _file_name(f"analysis {figure.name}"), "", figure


def _makers() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    try:
        import vl_convert
    except ImportError as error:
        raise InputError(f"figures: writing pictures needs vl-convert, not installed. Run: {EXTRA}") from error
    return {
        "png": lambda spec: bytes(vl_convert.vegalite_to_png(spec, scale=2)),
        "svg": lambda spec: vl_convert.vegalite_to_svg(spec).encode(),
        "pdf": lambda spec: bytes(vl_convert.vegalite_to_pdf(spec)),
    }


def _put(path: Path, content: bytes) -> Path:
    with writing(path) as file:
        file.write(content)
    return path


def _file_name(text: str) -> str:
    """Make a name that every file system takes, whatever a row says.

    >>> _file_name("cifar10-c, s5: wrn-28-10, reset ../../etc/passwd")
    'cifar10-c-s5-wrn-28-10-reset-etc-passwd'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:120] or "figure"


def _free(name: str, taken: set[str]) -> str:
    """Give a name that no other figure has: two tables may differ in what their title does not say."""
    free, count = name, 1
    while free.lower() in taken:
        count += 1
        free = f"{name}-{count}"
    taken.add(free.lower())
    return free
