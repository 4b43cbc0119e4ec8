"""The leaderboard: every method in every situation that was measured, from stored rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import method_page
from steep.bench.rows import read
from steep.methods import METHODS, SOURCE

RESULTS = Path(__file__).parents[2] / "results"
MODEL = {"data": "cifar10-c", "model": "wrn-28-10", "severity": 5, "batch_size": 200, "precision": "bfloat16"}
# a situation: what its rows have in common. All rows of one are answers of the same weights to the same images.
SITUATIONS: dict[str, dict[str, Any]] = {
    "reset, 10,000": MODEL | {"protocol": "reset", "limit": None},
    "continual, 10,000": MODEL | {"protocol": "continual", "limit": None},
    "reset": MODEL | {"protocol": "reset", "limit": 2000},
    "continual": MODEL | {"protocol": "continual", "limit": 1000},
    "mixed": MODEL | {"protocol": "mixed", "limit": 1000},
    "label shift": MODEL | {"protocol": "label-shift", "limit": 1000},
    "batches of 1": MODEL | {"protocol": "reset", "batch_size": 1, "limit": 60},
    "of 4": MODEL | {"protocol": "reset", "batch_size": 4, "limit": 240},
    "of 16": MODEL | {"protocol": "reset", "batch_size": 16, "limit": 500},
    "of 50": MODEL | {"protocol": "reset", "batch_size": 50, "limit": 1000},
}
FILES = (  # where two have the same cell, the later one counts
    "cifar10-c-severity-5",
    "tea-fast-h200",
    "leaderboard-h200",
    "cifar10-c-2000-h200",
    "cifar10-c-tuned-2000-h200",
    "continual-1000-h200",
    "mixed-1000-h200",
    "label-shift-1000-h200",
    "cifar10-c-whole-h200",
    "continual-10000-h200",
    "streams-1000-h200",
    "batches-h200",
    "tea-mirrored-2000-h200",
    "energy-2000-h200",
)
RANKED = ("reset", "continual", "mixed", "label shift")  # ranks are among the lines that have all of these

Line = tuple[str, str]  # (label, setting)


@cache
def _stored() -> tuple[dict[str, Any], ...]:
    return tuple(row for file in FILES for row in read(RESULTS / f"{file}.jsonl") if row["spec"]["seed"] == 0)


def cells(common: Mapping[str, Any]) -> dict[Line, dict[str, dict[str, Any]]]:
    """Give the rows that have these in common, by line and shift."""
    by_line: dict[Line, dict[str, dict[str, Any]]] = {}
    for row in _stored():
        spec = row["spec"]
        if all(spec.get(key) == value for key, value in common.items()):
            by_line.setdefault((spec["label"] or spec["method"], spec["setting"]), {})[spec["shift"]] = row
    return by_line


@cache
def accuracies() -> dict[str, dict[Line, float]]:
    """Mean percent over the shifts, by situation and line; only of lines that have every shift."""
    means: dict[str, dict[Line, float]] = {}
    for name, common in SITUATIONS.items():
        lines = cells(common)
        shifts = max(map(len, lines.values()), default=0)
        means[name] = {
            line: statistics.mean(100 * row["accuracy"] for row in by_shift.values())
            for line, by_shift in lines.items()
            if len(by_shift) == shifts
        }
    return means


def mean_rank(line: Line) -> float | None:
    """Mean place over the four streams, among the lines that have all of them; 1 is the first in each."""
    streams = [accuracies()[name] for name in RANKED]
    lines = set.intersection(*map(set, streams))
    if line not in lines:
        return None
    return statistics.mean(1 + sum(values[other] > values[line] for other in lines) for values in streams)


def least_gain(line: Line) -> tuple[float, str]:
    """The situation in which a line is worst beside the model without adaptation, and by how much."""
    gains = [
        (values[line] - values[(SOURCE, "paper")], name)
        for name, values in accuracies().items()
        if line in values and (SOURCE, "paper") in values
    ]
    return min(gains)


def table() -> str:
    """A line for each method, the best first; the best of each situation is bold."""
    means = {name: values for name, values in accuracies().items() if values}
    lines = sorted({line for values in means.values() for line in values}, key=_order)
    rows = ["| method | mean rank | " + " | ".join(means) + " | least gain | passes |"]
    rows.append("|---|" + "---:|" * (len(means) + 1) + "---|---:|")
    for line in lines:
        label, setting = line
        method = label.removesuffix(" mirrored")
        if method not in METHODS:
            continue
        cells = [_cell(values, line) for values in means.values()]
        gain, where = least_gain(line)
        least = "–" if label == SOURCE else f"{gain:+.1f} ({where})".replace("-", "−", 1)
        passes = method_page.passes(METHODS[method]) + label.endswith(" mirrored")
        rank = mean_rank(line)
        name = f"[{label}](methods.md#{method})" + (" (tuned)" if setting == "tuned" else "")
        head = "–" if rank is None else f"{rank:.1f}"
        rows.append(f"| {name} | {head} | " + " | ".join(cells) + f" | {least} | {passes:.3g} |")
    return "\n".join(rows)


def _order(line: Line) -> tuple[float, float, Line]:
    """The best first: by mean rank, and lines without one by the first situation that they have."""
    rank = mean_rank(line)
    first = next(values[line] for values in accuracies().values() if line in values)
    return math.inf if rank is None else rank, -first, line


def _cell(values: Mapping[Line, float], line: Line) -> str:
    if line not in values:
        return "–"
    return f"**{values[line]:.1f}**" if values[line] == max(values.values()) else f"{values[line]:.1f}"
