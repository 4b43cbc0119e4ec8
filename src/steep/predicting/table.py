"""Predictions as a file: CSV, or Parquet where pyarrow is installed. Written in one piece."""

from __future__ import annotations

import csv
import importlib
import io
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from steep.errors import InputError
from steep.files import explained, make_folder, writing

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a formula begins in one spreadsheet or another

COLUMNS = ("file", "class", "probability", "energy", "skipped")


@dataclass(frozen=True)
class Row:
    """One picture. One that could not be read has no class, and `skipped` says why."""

    file: str
    label: str | None  # the class answered; `class` in the table
    probability: float | None
    energy: float | None
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
        _pyarrow()
    with explained(path):
        make_folder(path.parent)
    return path


def write_table(rows: Iterable[Row], path: str | os.PathLike[str]) -> Path:
    """Write rows with the columns file, class, probability, energy, skipped.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_table([Row("a.png", "cat", 0.75, -2.0)], f"{folder}/p.csv").read_text())
    file,class,probability,energy,skipped
    a.png,cat,0.750000,-2.000000,
    """
    path, every = check_table(path), list(rows)
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in every:
            numbers = ("" if value is None else f"{value:.6f}" for value in (row.probability, row.energy))
            table.writerow((_file(row.file), _word(row.label or ""), *numbers, _word(row.skipped)))
        payload = text.getvalue().encode()
    else:
        payload = _parquet(every)
    with writing(path) as file:
        file.write(payload)
    return path


def _file(name: str) -> str:
    """Keep a spreadsheet from taking a file's name for a formula; with ./ before it, it still names the file."""
    return f"./{name}" if name.startswith(_FORMULA) else name


def _word(text: str) -> str:
    """Do the same for a class name, which may come from a folder or a stranger's weights: with an apostrophe.

    >>> _word("=1+1"), _word("-1"), _word("cat")
    ("'=1+1", '-1', 'cat')
    """
    return f"'{text}" if text.startswith(_FORMULA) and not _number(text) else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parquet(rows: list[Row]) -> bytes:
    arrow, parquet = _pyarrow()
    kinds = (arrow.string(), arrow.string(), arrow.float64(), arrow.float64(), arrow.string())
    columns = zip(*map(astuple, rows), strict=True) if rows else [()] * len(COLUMNS)
    arrays = [arrow.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(arrays, names=list(COLUMNS)), buffer)
    return buffer.getvalue()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise InputError("out: .parquet needs pyarrow. Run: pip install pyarrow, or choose a name in .csv") from None
