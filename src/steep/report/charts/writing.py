"""Figures as files: each chart in the formats asked for, and the numbers behind it as CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from steep.errors import InputError, unknown
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
    for title, own in parted.items():
        name = own[0]["analysis"] if len(parted) == 1 else _file_name(title)
        for table, records in TABLES[own[0]["analysis"]](own).items():
            written.append(_whole(folder / f"{name}-{table}.csv", _csv(records)))
        if asked:
            spec = CHARTS[own[0]["analysis"]](own).to_dict()
            written += [_whole(folder / f"{name}.{form}", _render(form)(spec)) for form in asked]
    return written


def _whole(path: Path, content: bytes) -> Path:
    with writing(path) as file:
        file.write(content)
    return path


def _csv(records: Rows) -> bytes:
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    names = list(dict.fromkeys(name for record in records for name in record))
    write.writerow(names)
    write.writerows([harmless(record.get(name)) for name in names] for record in records)
    return out.getvalue().encode()


def _render(form: str) -> Callable[[dict[str, Any]], bytes]:
    if form == "json":
        return lambda spec: json.dumps(spec).encode()
    altair()
    try:
        import vl_convert
    except ImportError as error:
        raise InputError(f"{form}: expected vl-convert to be installed. Run: pip install 'steep[report]'") from error
    makers: dict[str, Callable[[dict[str, Any]], bytes]] = {
        "png": lambda spec: bytes(vl_convert.vegalite_to_png(spec, scale=2)),
        "svg": lambda spec: str(vl_convert.vegalite_to_svg(spec)).encode(),
        "pdf": lambda spec: bytes(vl_convert.vegalite_to_pdf(spec)),
        "html": lambda spec: str(vl_convert.vegalite_to_html(spec, bundle=True)).encode(),  # bundled: works offline
    }
    return makers[form]


def _file_name(title: str) -> str:
    """Make a file name of a title.

    >>> _file_name("energy-severity cifar10-c wrn-40-2 tea (tuned)")
    'energy-severity-cifar10-c-wrn-40-2-tea-tuned'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", title.replace("′", "-other")).strip("-.")
