"""The tables of the page "What TEA's samples do": with samples and without, from stored rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import cache
from typing import Any

import leaderboard
import method_page
from steep.bench.rows import read
from steep.methods import METHODS

METHODS_COMPARED = ("bn", "energy", "tea-fast", "tea")  # no loss, the first term alone, few samples, all of them
STEPS = "sensitivity-2000-h200"  # TEA with other numbers of Langevin steps


@cache
def reset_rows() -> tuple[dict[str, Any], ...]:
    """Every row of the situation "reset": CIFAR-10-C at severity 5, one view, as published."""
    common = leaderboard.SITUATIONS["reset"]
    rows = [row for file in (*leaderboard.FILES, STEPS) for row in read(leaderboard.RESULTS / f"{file}.jsonl")]
    return tuple(
        row
        for row in rows
        if row["spec"]["setting"] == "paper"
        and row["spec"]["seed"] == 0
        and "views" not in row["spec"]
        and all(row["spec"].get(key) == value for key, value in common.items())
    )


def by_situation() -> str:
    """Accuracy with and without samples in every situation, calibration, and what it costs."""
    situations = {
        name: values
        for name, values in leaderboard.accuracies().items()
        if all((method, "paper") in values for method in METHODS_COMPARED[:3])
    }
    lines = ["| method | " + " | ".join(situations) + " | ECE (reset) | passes |"]
    lines.append("|---|" + "---:|" * (len(situations) + 2))
    for method in METHODS_COMPARED:
        rows = [row for row in reset_rows() if row["spec"]["label"] == method]
        cells = [f"{v[(method, 'paper')]:.1f}" if (method, "paper") in v else "–" for v in situations.values()]
        ece = 100 * statistics.mean(row["ece"] for row in rows)
        cost = method_page.passes(METHODS[method])
        lines.append(f"| [{method}](methods.md#{method}) | {' | '.join(cells)} | {ece:.1f} | {cost:.3g} |")
    return "\n".join(lines)


def by_steps() -> str:
    """Accuracy and calibration by the number of Langevin steps; 0 is the first term alone."""
    shifts = {row["spec"]["shift"] for row in reset_rows() if row["spec"]["label"] == "sgld-steps-1"}
    lines = ["| Langevin steps | accuracy | ECE |", "|---:|---:|---:|"]
    for steps, label in _labels():
        rows = [row for row in reset_rows() if row["spec"]["label"] == label and row["spec"]["shift"] in shifts]
        accuracy, ece = (100 * statistics.mean(row[name] for row in rows) for name in ("accuracy", "ece"))
        lines.append(f"| {steps} | {accuracy:.1f} | {ece:.1f} |")
    names = ", ".join(sorted(shift.replace("_", " ") for shift in shifts))
    return "\n".join(lines) + f"\n\nMean over {len(shifts)} corruptions ({names}), 2,000 images each."


def _labels() -> Iterator[tuple[int, str]]:
    yield 0, "energy"
    counts = {
        row["spec"]["hyper"]["sgld_steps"]: row["spec"]["label"]
        for row in reset_rows()
        if row["spec"]["label"] == "tea" or row["spec"]["label"].startswith("sgld-steps")
    }
    yield from sorted(counts.items())
