"""Numbers inside a sentence, taken from rows: an explanation says where a number stands, never what it is.

    "bn {bn}, on fog {bn@fog}"              accuracy in percent: the mean over all corruptions, and of one
    "before {cifar10-c-severity-5/sar}"     of another file than the evidence
    "{share tea@fog} % went to one class"   how many of the answers the most frequent one has

Rows count that are of the explanation's data, model and source. They have to be of one training, setting, severity and
number of images: a mean over two would be of neither.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steep.bench.rows import Row, StoreError, read
from steep.errors import InputError

_ONE = ("weights_sha256", "setting", "severity", "limit")
_QUOTE = re.compile(r"\{(?:(?P<what>\w+) )?(?:(?P<file>[\w.-]+)/)?(?P<label>[\w.-]+)(?:@(?P<shift>[\w-]+))?\}")


def _accuracy(row: Row) -> float:
    return 100 * float(row["accuracy"])


def _share(row: Row) -> float:
    predicted: list[int] = row["per_class"]["predicted"]
    return 100 * max(predicted) / sum(predicted)


_WHAT: Mapping[str, tuple[Callable[[Row], float], str]] = {"accuracy": (_accuracy, ".1f"), "share": (_share, ".0f")}


def fill(text: str, folder: Path, evidence: str, about: Mapping[str, Any], where: str) -> str:
    """Put numbers where a text names them.

    Args:
        text: the sentence.
        folder: where the files of rows lie.
        evidence: the file meant where none is named.
        about: what `spec` of a row has to say: data, model, source. What is empty says nothing.
        where: whose text it is, for errors.
    """

    rows_of = functools.cache(read)  # a text often quotes one file many times

    def number(match: re.Match[str]) -> str:
        what, name = match["what"] or "accuracy", f"{match['file']}.jsonl" if match["file"] else evidence
        path = folder / name
        if what not in _WHAT or not name or not path.is_file():
            raise InputError(
                f"{where}: expected {{label}}, {{label@shift}} or {{file/label}}, with share or nothing before it, and "
                f"a file of rows beside the explanations, got {match[0]}"
            )
        try:
            rows = [row for row in rows_of(path) if _meant(row["spec"], match["label"], match["shift"], about)]
        except (StoreError, KeyError) as error:
            raise InputError(f"{where}: expected {name} to be a file of cells, for {match[0]} ({error})") from error
        kinds = {tuple(str(row["spec"].get(key)) for key in _ONE) for row in rows}
        if len(kinds) != 1:
            found = "none" if not rows else "several: " + "; ".join(" ".join(kind) for kind in sorted(kinds))
            raise InputError(f"{where}: expected {match[0]} to be rows of one {', '.join(_ONE)} in {name}, got {found}")
        measure, form = _WHAT[what]
        return format(statistics.fmean(measure(row) for row in rows), form)

    filled = _QUOTE.sub(number, text)
    if left := re.search(r"\{[^}]*\}?|\}", filled):
        raise InputError(f"{where}: expected a number such as {{bn}} or {{bn@fog}}, got {left[0]}")
    return filled


def _meant(spec: Mapping[str, Any], label: str, shift: str | None, about: Mapping[str, Any]) -> bool:
    same = all(spec.get(name) == value for name, value in about.items() if value)
    here = spec.get("shift") == shift if shift else spec.get("shift") != "clean"
    return same and here and (spec.get("label") or spec.get("method")) == label
