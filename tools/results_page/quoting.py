"""Numbers inside a sentence, taken from rows: an explanation says where a number stands, never what it is.

    "bn {bn}, on fog {bn@fog}"              accuracy in percent: the mean over all corruptions, and of one
    "bn {bn@tea} where tea has {tea@tea}"   the mean over those corruptions that tea has run on
    "bn {bn:5}, on fog {bn:5@fog}"          at severity 5 alone, of a file that has several
    "before {cifar10-c-severity-5/sar}"     of another file than the evidence
    "{share tea@fog} % went to one class"   how many of the answers the most frequent one has
    "to an energy of {energy tea@fog}"      mean energy of the images once the model has answered

Rows count that are of the explanation's data, model and source. They have to be of one training, setting, severity and
number of images: a mean over two would be of neither. A mean over all corruptions wants as many as any line of the file
has. Of a stream through several shifts each shift counts the same.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steep.bench.rows import Row, StoreError, read
from steep.errors import InputError

_ONE = ("weights_sha256", "setting", "severity", "limit")
_QUOTE = re.compile(
    r"\{(?:(?P<what>\w+) )?(?:(?P<file>[\w.-]+)/)?(?P<label>[\w.-]+)"
    r"(?::(?P<severity>[1-5]))?(?:@(?P<shift>[\w-]+))?\}"
)


def _accuracy(row: Row) -> float:
    return 100 * statistics.fmean(float(part["accuracy"]) for part in row.get("segments") or [row])


def _share(row: Row) -> float:
    predicted: list[int] = row["per_class"]["predicted"]
    return 100 * max(predicted) / sum(predicted)


def _energy(row: Row) -> float:
    return float(row["energy_after"])


_WHAT: Mapping[str, tuple[Callable[[Row], float], str]] = {
    "accuracy": (_accuracy, ".1f"),
    "share": (_share, ".0f"),
    "energy": (_energy, ".1f"),
}


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
                f"{where}: expected {{label}}, {{label@shift}}, {{label:severity}} or {{file/label}}, "
                f"with {', '.join(_WHAT)} or nothing before it, and a file of rows beside the explanations, "
                f"got {match[0]}"
            )
        try:
            meant = {**about, "severity": int(match["severity"])} if match["severity"] else about
            every = [row for row in rows_of(path) if _meant(row["spec"], meant)]
            rows = _named(every, match["label"], match["shift"])
        except (StoreError, KeyError) as error:
            raise InputError(f"{where}: expected {name} to be a file of cells, for {match[0]} ({error})") from error
        kinds = {tuple(str(row["spec"].get(key)) for key in _ONE) for row in rows}
        if len(kinds) != 1:
            got = "none" if not rows else "several: " + "; ".join(" ".join(kind) for kind in sorted(kinds))
            raise InputError(f"{where}: expected {match[0]} to be rows of one {', '.join(_ONE)} in {name}, got {got}")
        others = [row for row in every if match["shift"] in (None, _label(row))]  # whose corruptions it is to have
        lacking = {row["spec"]["shift"] for row in others} - {row["spec"]["shift"] for row in rows} - {"clean"}
        if lacking:
            raise InputError(
                f"{where}: expected {match[0]} to have every corruption of {match['shift'] or name}, "
                f"it lacks {', '.join(sorted(lacking))}. "
                f"For the mean over those it has: {{{match['label']}@{match['label']}}}"
            )
        measure, form = _WHAT[what]
        return format(statistics.fmean(measure(row) for row in rows), form).replace("-", "−")

    filled = _QUOTE.sub(number, text)
    if left := re.search(r"\{[^}]*\}?|\}", filled):
        raise InputError(f"{where}: expected a number such as {{bn}} or {{bn@fog}}, got {left[0]}")
    return filled


def files(text: str) -> list[str]:
    """Name the files that a text quotes, apart from its evidence."""
    return [f"{match['file']}.jsonl" for match in _QUOTE.finditer(text) if match["file"]]


def _meant(spec: Mapping[str, Any], about: Mapping[str, Any]) -> bool:
    return all(spec.get(name) == value for name, value in about.items() if value)


def _named(rows: Sequence[Row], label: str, shift: str | None) -> list[Row]:
    """Give the rows of a line: on one shift, or on those of another line, or on all but clean images."""
    of_line = [row for row in rows if _label(row) == label]
    if shift is None:
        return [row for row in of_line if row["spec"]["shift"] != "clean"]
    others = {row["spec"]["shift"] for row in rows if _label(row) == shift} - {"clean"}
    return [row for row in of_line if row["spec"]["shift"] in (others or {shift})]


def _label(row: Row) -> str:
    return str(row["spec"].get("label") or row["spec"].get("method"))
