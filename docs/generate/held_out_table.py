"""The table of the page "Infuse": trials on corruptions that no benchmark has, from stored rows."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import leaderboard
from steep.bench.rows import read

ROWS = Path(__file__).parents[2] / "results/tried/infuse-held-out-h200.jsonl"
LINES = {
    "source2": "source mirrored",
    "bn2": "bn mirrored",
    "energy2": "energy mirrored",
    "prior.5": "infuse, diversity 1.5",
    "d3": "infuse, diversity 3",
}
COLUMNS = {  # what a trial calls a stream, by what the page calls it
    "reset": "iid200",
    "label shift": "dir200",
    "class by class": "sort50",
    "batches of 50": "iid50",
    "of 16": "iid16",
    "of 4": "iid4",
    "of 1": "iid1",
}
WHOLE = {"mixed": "mixed", "mixed, label shift": "mixed:dir", "continual": "continual"}
SETS = {"c10": "CIFAR-10", "c100": "CIFAR-100"}


def table() -> str:
    """A line for each data set and method; clean images are not in the means."""
    trials = {(row["data"], row["label"]): row for row in map(json.loads, ROWS.read_text("utf-8").splitlines())}
    heads = ["data", "method", *COLUMNS, *WHOLE]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for data, title in SETS.items():
        for label, name in LINES.items():
            row = trials[data, label]
            values = [
                [v for key, v in row.items() if key.endswith(f":{stream}") and not key.startswith(("clean", "mixed"))]
                for stream in COLUMNS.values()
            ]
            cells = [f"{statistics.mean(v):.1f}" if v else "–" for v in values]
            cells += [f"{row[key]:.1f}" for key in WHOLE.values()]
            lines.append(f"| {title} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def whole_sets() -> str:
    """The benchmark's corruptions, 10,000 images each: infuse, and others on the same ones with the same weights."""
    results = ROWS.parents[1]
    common = leaderboard.MODEL | {"protocol": "reset", "limit": None, "seed": 0, "setting": "paper"}
    by_label: dict[str, dict[str, float]] = {}
    for file in ("leaderboard-h200", "tea-fast-h200", "cifar10-c-severity-5"):
        for row in read(results / f"{file}.jsonl"):
            spec = row["spec"]
            if all(spec.get(key) == value for key, value in common.items()):
                by_label.setdefault(spec["label"], {})[spec["shift"]] = 100 * row["accuracy"]
    shifts = by_label["infuse"]
    names = [name for name, values in by_label.items() if shifts.keys() <= values.keys()]
    means = {name: statistics.mean(by_label[name][shift] for shift in shifts) for name in names}
    ordered = sorted(means, key=lambda name: -means[name])
    lines = ["| " + " | ".join(ordered) + " |", "|" + "---:|" * len(ordered)]
    lines.append("| " + " | ".join(f"{means[name]:.1f}" for name in ordered) + " |")
    lacking = ", ".join(sorted(by_label["tea"].keys() - shifts.keys())).replace("_", " ")
    note = f"Percent, mean over {len(shifts)} of the 15 corruptions at severity 5; {lacking} is lacking."
    return "\n".join(lines) + f"\n\n{note}"
