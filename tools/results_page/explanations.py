"""Why our numbers differ from the paper's: a small file of explanations, and which of them belongs to which number.

    [[explanation]]
    data = "cifar10-c"             # of the paper's tables, as are model, source, severities and methods
    model = "wrn-28-10"            # left out: every model
    severities = [5]               # left out: every view of severities, clean images (0) too
    methods = ["source", "bn"]     # left out: every method
    text = "…"                     # a sentence or two; {bn@fog} is a number of the evidence: `quoting`
    evidence = "x.jsonl"           # left out: none; a file of rows beside the explanations, and where it helps
    label = "tea-buffer-kept"      # the lines in it

    [[remark]]                     # said below every table of that data and model, whatever the paper has
    data = "cifar10-c"             # and the rest as above, but for severities and methods

Everything is checked: what names nothing would explain nothing, and nobody would notice.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steep import recipes
from steep.errors import InputError, unknown
from steep.report.paper import CLEAN
from steep.report.tables import MCE, MEAN, Line, Table
from steep.report.words import plain
from tools.results_page import quoting

ALLOWED = 1.0
"""Points; a number that is farther from the paper's has to be explained."""

NONE = "not explained"

_REMARK = ("data", "model", "source", "text", "evidence", "label")
_KEYS = (*_REMARK, "severities", "methods")


@dataclass(frozen=True)
class Explanation:
    """Why some numbers differ; what is empty says nothing about which."""

    text: str
    data: str
    model: str = ""
    source: str = ""
    severities: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    evidence: str = ""
    label: str = ""
    others: tuple[str, ...] = ()  # files that it quotes numbers from, beside the evidence
    remark: bool = False  # of a table, not of a difference

    def about(self, table: Table) -> bool:
        """Tell whether this is about a table's data and model."""
        spec = table.spec
        return (
            self.data == spec.get("data")
            and self.model in ("", spec.get("model"))
            and self.source in ("", spec.get("source") or "")
        )

    def explains(self, table: Table, line: Line, column: str) -> bool:
        """Tell whether this is about a number of a table."""
        severities = (0,) if column == CLEAN else table.severities
        return (
            not self.remark
            and self.about(table)
            and (not self.severities or set(self.severities) == set(severities))
            and (not self.methods or line.method in self.methods)
        )

    def __str__(self) -> str:
        evidence = self.evidence + (f", {self.label}" if self.label else "")
        files = "; ".join(filter(None, (evidence, *self.others)))
        return self.text + (f" (rows: {files})" if files else "")


@dataclass(frozen=True)
class Note:
    """What is said below a table: of which numbers, and why they differ."""

    number: int
    differences: tuple[tuple[str, str, float], ...]  # method, column, ours less the paper's
    text: str


def notes(table: Table, explanations: Sequence[Explanation]) -> list[Note]:
    """Explain every average of a table that is farther from the paper's than allowed; one note for each reason."""
    by_reason: dict[str, list[tuple[str, str, float]]] = {}
    for line in table.lines:
        for column in (MEAN, MCE, CLEAN):
            away = line.values[column].difference if column in line.values else None
            if away is None or not abs(away) > ALLOWED:
                continue
            why = [str(one) for one in explanations if one.explains(table, line, column)]
            by_reason.setdefault(" ".join(why) or NONE, []).append((line.name, column, away))
    ordered = sorted(by_reason.items(), key=lambda pair: pair[0] == NONE)  # what is open comes last
    return [Note(number, tuple(numbers), text) for number, (text, numbers) in enumerate(ordered, 1)]


def remarks(table: Table, explanations: Sequence[Explanation]) -> list[str]:
    """Give what is to be said of a table, whether or not the paper has a figure for it."""
    return [str(one) for one in explanations if one.remark and one.about(table)]


def read(path: Path) -> tuple[Explanation, ...]:
    """Read and check a file of explanations."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"explanations: expected a text file, got {path.name} ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"explanations {path.name}: not valid TOML: {error}") from error
    kinds = {"explanation": _KEYS, "remark": _REMARK}
    recipes.check_keys(f"explanations {path.name}", table, list(kinds))
    checked = []
    for kind, keys in kinds.items():
        entries = table.get(kind, [])
        if not isinstance(entries, list):
            raise InputError(f"explanations {path.name}: expected [[{kind}]] tables, got {type(entries).__name__}")
        for number, entry in enumerate(entries, 1):
            where = f"{kind} {number} of {path.name}"
            if not isinstance(entry, dict):
                raise InputError(f"{where}: expected a table, [[{kind}]], got {entry!r}")
            recipes.check_keys(where, entry, keys)
            checked.append(replace(_checked(entry, where, path.parent), remark=kind == "remark"))
    return tuple(checked)


def _checked(entry: Mapping[str, Any], where: str, folder: Path) -> Explanation:
    for name in ("data", "text"):
        if not entry.get(name):
            raise InputError(f"{where}: expected {name}, got none. Say of which data it is, and why they differ")
    for name, value in entry.items():
        kind: type = list if name in ("severities", "methods") else str
        if not isinstance(value, kind):
            raise InputError(f"{where}: expected {name} to be a {kind.__name__}, got {value!r}")
    blocks = list(recipes.paper()["block"])
    for name in ("data", "model", "source"):
        if entry.get(name):
            _known(f"{name} of {where}", entry[name], (block.get(name, "") for block in blocks))
            blocks = [block for block in blocks if block.get(name, "") == entry[name]]
    for method in entry.get("methods", ()):
        _known(f"method of {where}", str(method), (name for block in blocks for name in block["methods"]))
    views = {tuple(block["severities"]) for block in blocks}
    severities = tuple(entry.get("severities", ()))
    if severities and severities not in views:
        raise InputError(f"{where}: expected severities of the paper's tables, {sorted(views)}, got {list(severities)}")
    evidence, label = entry.get("evidence", ""), entry.get("label", "")
    if label and not evidence:
        raise InputError(f"{where}: expected evidence, the file that has the lines {label!r}, got none")
    if evidence:
        _refuse_missing(where, folder / evidence, label)
    about = {name: entry.get(name, "") for name in ("data", "model", "source")}
    quoted = dict.fromkeys(quoting.files(entry["text"]))
    return Explanation(
        text=plain(quoting.fill(" ".join(entry["text"].split()), folder, evidence, about, where)),
        data=entry["data"],
        model=entry.get("model", ""),
        source=entry.get("source", ""),
        severities=severities,
        methods=tuple(entry.get("methods", ())),
        evidence=plain(evidence),
        label=plain(label),
        others=tuple(plain(name) for name in quoted if name != evidence),
    )


def _known(what: str, name: str, names: Iterable[str]) -> None:
    every = {known for known in names if known}
    if name not in every:
        raise unknown(what, name, every)


def _refuse_missing(where: str, path: Path, label: str) -> None:
    """Refuse evidence that is not there."""
    if not path.is_file():
        raise InputError(f"{where}: expected evidence to be a file beside the explanations, got {path.name}")
    if label:
        try:
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            labels = {str(row.get("label") or row.get("spec", {}).get("label") or "") for row in rows}
        except (ValueError, AttributeError) as error:
            raise InputError(
                f"{where}: expected evidence to be rows, one JSON object a line, got {path.name}"
            ) from error
        _known(f"label of {where}", label, labels)
