"""Figures as files: any chart in the formats asked for, and the numbers behind it as CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from steep.errors import InputError, install_extra, unknown
from steep.files import writing
from steep.report.charts.rows import Rows, figures
from steep.report.charts.style import altair
from steep.report.formats import harmless

FORMATS = ("png", "svg", "pdf", "html", "json")
"""What a figure can be written as; json is Vega-Lite."""


def formats(text: str) -> list[str]:
    """Read such as `png,svg`.

    >>> formats("png, svg")
    ['png', 'svg']
    """
    asked = [word.strip() for word in text.split(",") if word.strip()]
    for word in asked:
        if word not in FORMATS:
            raise unknown("format of a figure", word, FORMATS)
    return asked


def write(rows: Rows, folder: Path, asked: Sequence[str]) -> list[Path]:
    """Write every figure of the rows, its tables first: they need no charting library. Gives the files."""
    from steep.report.charts import CHARTS, TABLES

    written = []
    parted = figures(rows)
    taken: set[str] = set()
    for title, own in parted.items():
        name = free(file_name(own[0]["analysis"] if len(parted) == 1 else title), taken)
        for table, records in TABLES[own[0]["analysis"]](own).items():
            written.append(put(folder / f"{name}-{table}.csv", as_csv(records)))
        if asked:
            spec = CHARTS[own[0]["analysis"]](own).to_dict()
            written += [put(folder / f"{name}.{form}", render(form)(spec)) for form in asked]
    return written


def put(path: Path, content: bytes) -> Path:
    """Write a file, whole or not at all, and name it."""
    with writing(path) as file:
        file.write(content)
    return path


def as_csv(records: Sequence[dict[str, Any]]) -> bytes:
    """Write records as CSV: one column for each name, text kept from being taken for a formula.

    >>> as_csv([{"method": "=tea", "gain": 1.5}])
    b"method,gain\\n'=tea,1.5\\n"
    """
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    names = list(dict.fromkeys(name for record in records for name in record))
    lines.writerow(names)
    lines.writerows([harmless(record.get(name)) for name in names] for record in records)
    return out.getvalue().encode()


def render(form: str) -> Callable[[dict[str, Any]], bytes]:
    """Give what turns Vega-Lite into the bytes of a file."""
    if form == "json":
        return lambda spec: json.dumps(spec).encode()
    altair()
    try:
        import vl_convert
    except ImportError as error:
        raise InputError(f"{form}: expected vl-convert to be installed. {install_extra('report')}") from error
    makers: dict[str, Callable[[dict[str, Any]], bytes]] = {
        "png": lambda spec: bytes(vl_convert.vegalite_to_png(spec, scale=2)),
        "svg": lambda spec: str(vl_convert.vegalite_to_svg(spec)).encode(),
        "pdf": lambda spec: bytes(vl_convert.vegalite_to_pdf(spec)),
        "html": lambda spec: str(vl_convert.vegalite_to_html(spec, bundle=True)).encode(),  # bundled: works offline
    }
    return makers[form]


def file_name(text: str) -> str:
    """Make a name that every file system takes, whatever a row says.

    >>> file_name("cifar10-c, s5: wrn-28-10, reset ../../etc/passwd")
    'cifar10-c-s5-wrn-28-10-reset-etc-passwd'
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:120] or "figure"


def free(name: str, taken: set[str]) -> str:
    """Give a name that no other figure has: two may differ in what their title does not say.

    >>> free("speed", {"speed"})
    'speed-2'
    """
    found, count = name, 1
    while found.lower() in taken:
        count += 1
        found = f"{name}-{count}"
    taken.add(found.lower())
    return found
