"""Every situation in which the method that chooses was run beside others, found in the stored rows.

A situation is what its rows have in common: data, protocol, model, batches, severity, images. Rows of a situation are
answers to the same images by the same weights; where there are several sets (corruptions, pairs of domains), a method
counts only if it has all those that the method that chooses has, and its accuracy is their mean.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import safety_table
from steep.core.settings import Behaviour
from steep.methods import METHODS, SOURCE
from steep.report.words import data_title, model_title

RESULTS = Path(__file__).parents[2] / "results"
FILES = ("*.jsonl", "real-pictures/*.jsonl", "tried/auto-wrn-40-2-cpu.jsonl")
LONG_STREAM = "long-stream"  # the benchmark of rows that are one endless stream each
CHOOSES = "auto"
MISLEAD, ENDLESS, SHIFTS = "camera streams, and streams made to mislead", "a stream without an end", "natural shifts"
CLEAN = "clean"
GUARD = Behaviour().guard  # what a user gets who names none

OF_THE_METHOD = {"method", "label", "setting", "hyper", "predict", "steps", "episodic", "guard", "views", "weights"}

Cell = tuple[tuple[str, str], ...]  # what was asked: all of a row's spec that is not of the method
Row = dict[str, Any]


class Line(NamedTuple):
    """A method as it was run: with a label such as "tent mirrored", and a setting."""

    label: str
    setting: str

    def __str__(self) -> str:
        """Name it as tables do."""
        return self.label if self.setting == "paper" else f"{self.label} ({self.setting})"


@dataclass
class Situation:
    """Percent by line, over the same sets of images."""

    name: str
    group: str
    accuracy: dict[Line, float]
    sets: dict[str, float] = field(default_factory=dict)  # set → points of the method that chooses above the source
    partial: tuple[str, ...] = ()  # lines that have some of the sets only


OURS, UNADAPTED = Line(CHOOSES, "paper"), Line(SOURCE, "paper")


@cache
def situations() -> tuple[Situation, ...]:
    """All of them, from the repository's rows: streams made to mislead, cells of benchmarks, streams without an end."""
    rows = stored(RESULTS)
    return (*misleading(), *of_cells(row for row in rows if "spec" in row), *endless(rows))


def stored(results: Path) -> list[Row]:
    """Read every row that may belong to a situation."""
    rows = []
    for pattern in FILES:
        for file in sorted(results.glob(pattern)):
            lines = map(json.loads, file.read_text("utf-8").splitlines())
            rows += [row for row in lines if "label" in row.get("spec", ()) or row.get("benchmark") == LONG_STREAM]
    return rows


def misleading() -> list[Situation]:
    """The streams that are made to mislead; a method counts where it was run on all the images of a stream."""
    streams = []
    for stream, methods in safety_table.gains().items():
        whole = methods[SOURCE][1]["n"]
        done = {Line(name, "paper"): 100 * row["accuracy"] for name, (_, row) in methods.items() if row["n"] == whole}
        if OURS in done:
            partial = tuple(name for name in methods if Line(name, "paper") not in done)
            streams.append(Situation(stream, MISLEAD, done, partial=partial))
    return streams


def endless(rows: Iterable[Row]) -> list[Situation]:
    """Streams without an end; a method counts with the default guard where it was run with it, else as it was run."""
    by_stream: dict[tuple[int, int, str], dict[Line, Row]] = defaultdict(dict)
    for row in rows:
        line = Line(row.get("variant", ""), "paper")
        if row.get("benchmark") == LONG_STREAM and line.label in METHODS:
            seen = by_stream[row["images"], row["batch"], row["device"]]
            if line not in seen or row["guard"] == GUARD:
                seen[line] = row
    return [
        Situation(
            f"{images:,} corrupted digits without a reset, batches of {batch:,}",
            ENDLESS,
            {line: 100 * row["accuracy"] for line, row in done.items()},
        )
        for (images, batch, _), done in by_stream.items()
        if OURS in done
    ]


def of_cells(rows: Iterable[Row]) -> list[Situation]:
    """Cells of `steep bench`, those with the same in common together; of a cell that was run twice the last counts."""
    cells: dict[Cell, dict[tuple[Line, str], Row]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["finished"]):
        spec = row["spec"]
        line = Line(spec["label"], spec["setting"])
        if line.label.removesuffix(" mirrored") in METHODS:
            asked = {name: repr(value) for name, value in spec.items() if name not in OF_THE_METHOD}
            cells[tuple(sorted(asked.items()))][line, spec["guard"]] = row
    groups: dict[str, list[dict[tuple[Line, str], Row]]] = defaultdict(list)
    commons: dict[str, dict[str, Any]] = {}
    trainings: dict[str, list[str]] = defaultdict(list)
    for lines in cells.values():
        if (ours := lines.get((OURS, GUARD))) is not None:
            common = _common(ours["spec"])
            if source := ours["spec"]["source"]:  # a model for each domain: which training of it is this?
                seen = trainings[f"{common} {source}"]
                if (weights := ours["spec"]["weights_sha256"]) not in seen:
                    seen.append(weights)
                common["training"] = 1 + seen.index(weights)
            commons[repr(common)] = common
            groups[repr(common)].append(lines)
    names = _names([*commons.values()])
    return [_situation(name, commons[key], groups[key]) for name, key in zip(names, commons, strict=True)]


def _common(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the sets of a situation share; where sets have domains, each has its own model."""
    of_a_set = {"shift", "source", "sequence"} | ({"weights_sha256"} if spec["source"] else set())
    rest = {name: value for name, value in sorted(spec.items()) if name not in OF_THE_METHOD | of_a_set}
    return {**rest, "domains": bool(spec["source"])}


def _situation(name: str, common: Mapping[str, Any], sets: Sequence[Mapping[tuple[Line, str], Row]]) -> Situation:
    """Average the lines that have every set; a line that was run with several guards counts with the default one."""
    values: dict[Line, list[float]] = defaultdict(list)
    for lines in sets:
        for line in dict.fromkeys(line for line, _ in lines):
            row = lines.get((line, GUARD)) or next(row for (other, _), row in lines.items() if other == line)
            values[line].append(100 * row["accuracy"])
    done = {line: of for line, of in values.items() if len(of) == len(sets)}
    gains = {
        _set(spec): ours - theirs
        for spec, ours, theirs in zip(
            (lines[OURS, GUARD]["spec"] for lines in sets), done[OURS], done.get(UNADAPTED, ()), strict=False
        )
    }
    group = SHIFTS if common["domains"] else data_title(common["data"])
    partial = tuple(str(line) for line in values if line not in done)
    means = {line: statistics.fmean(of) for line, of in done.items()}
    return Situation(name, group, means, gains, partial)


def _set(spec: Mapping[str, Any]) -> str:
    where = f"{spec['source']} → {spec['shift']}" if spec["source"] else spec["shift"]
    return str(where).replace("_", " ")


def _names(commons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name situations in a reader's words: what each of them is, and what tells it from another of the same name."""
    names = [_name(common) for common in commons]
    for key in dict.fromkeys(("limit", "model", *(key for common in commons for key in common))):
        alike: dict[str, list[int]] = defaultdict(list)
        for place, name in enumerate(names):
            alike[name].append(place)
        for places in alike.values():
            if len({repr(commons[place].get(key)) for place in places}) > 1:
                for place in places:
                    names[place] += _detail(key, commons[place].get(key))
    return names


def _name(common: Mapping[str, Any]) -> str:
    parts = [data_title(common["data"])]
    if not common["domains"]:
        parts += [f"severity {common['severity']}" if common["severity"] else CLEAN]
    if common["protocol"] != "reset":
        parts += [common["protocol"].replace("-", " ")]
    return ", ".join([*parts, f"batches of {common['batch_size']}"])


def _detail(key: str, value: Any) -> str:
    if key == "limit":
        return f", {value:,} images each" if value else ", all images"
    if key == "model":
        return f", {model_title(value)}"
    return f", {key.replace('_', ' ')} {str(value)[:12]}" if value is not None else ""
