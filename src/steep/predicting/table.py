"""Predictions as a file: CSV, or Parquet where pyarrow is installed. Written in one piece."""

from __future__ import annotations

import csv
import importlib
import io
import os
import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from steep.errors import InputError
from steep.files import explained, make_folder, write_bytes

COLUMNS = ("file", "class", "probability", "energy", "source_class", "skipped")

_FORMULA = ("=", "+", "-", "@")  # how a formula begins; a tab or a carriage return never does, once escaped
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # line ends, colours, directions


@dataclass(frozen=True)
class Row:
    """One picture. One that could not be read has no class, and `skipped` says why."""

    file: str
    label: str | None  # the class answered; `class` in the table
    probability: float | None
    energy: float | None
    source: str | None = None  # the class that the model answers as it came; `source_class` in the table
    skipped: str = ""


def check_table(path: str | os.PathLike[str]) -> Path:
    """Refuse a name that cannot be written, before hours of predicting.

    >>> check_table("predictions.xlsx")
    Traceback (most recent call last):
    steep.errors.InputError: out: expected a name ending in .csv or .parquet, got 'predictions.xlsx'
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"out: expected a name ending in .csv or .parquet, got {path.name!r}")
    if path.suffix == ".parquet":
        _import_pyarrow()
    with explained(path):
        make_folder(path.parent)
    return path


def write_table(rows: Iterable[Row], path: str | os.PathLike[str]) -> Path:
    """Write rows with the columns file, class, probability, energy, source_class, skipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_table([Row("a.png", "cat", 0.75, -2.0, "dog")], f"{folder}/p.csv").read_text())
    file,class,probability,energy,source_class,skipped
    a.png,cat,0.750000,-2.000000,dog,
    """
    path = check_table(path)
    return write_bytes(path, _csv(rows) if path.suffix == ".csv" else _parquet(list(rows)))


def printable(text: str) -> str:
    r"""Escape what would end a line, colour a terminal or turn the direction of writing.

    >>> print(printable("a\r\x1b[31m.png"))
    a\r\x1b[31m.png
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _csv(rows: Iterable[Row]) -> bytes:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        numbers = ("" if value is None else f"{value:.6f}" for value in (row.probability, row.energy))
        words = (_word(word or "") for word in (row.source, row.skipped))
        table.writerow((_file(row.file), _word(row.label or ""), *numbers, *words))
    return text.getvalue().encode()


def _file(name: str) -> str:
    """Keep a spreadsheet from taking a file's name for a formula; with ./ before it, it still names the file."""
    return f"./{printable(name)}" if name.startswith(_FORMULA) else printable(name)


def _word(text: str) -> str:
    """Do the same for a class name, which may come from a folder or from foreign weights: with an apostrophe.

    >>> _word("=1+1"), _word("-1"), _word("cat")
    ("'=1+1", '-1', 'cat')
    """
    number = re.fullmatch(r"[+-]?[\d.]+", text)
    return f"'{printable(text)}" if text.startswith(_FORMULA) and not number else printable(text)


def _parquet(rows: list[Row]) -> bytes:
    arrow, parquet = _import_pyarrow()
    types = (arrow.string(), arrow.string(), arrow.float64(), arrow.float64(), arrow.string(), arrow.string())
    columns = zip(*map(astuple, rows), strict=True) if rows else [()] * len(COLUMNS)
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(arrays, names=list(COLUMNS)), buffer)
    return buffer.getvalue()


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("out: .parquet needs pyarrow. Run: pip install pyarrow, or choose a name in .csv") from None
