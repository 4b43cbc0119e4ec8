"""The table of the page "Infuse": trials on corruptions that no benchmark has, from stored rows."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

ROWS = Path(__file__).parents[2] / "results/tried/infuse-held-out-h200.jsonl"
LINES = {"source2": "source mirrored", "bn2": "bn mirrored", "energy2": "energy mirrored", "prior.5": "infuse"}
COLUMNS = {  # what a trial calls a stream, by what the page calls it
    "reset": "iid200",
    "label shift": "dir200",
    "class by class": "sort50",
    "batches of 50": "iid50",
    "16": "iid16",
    "4": "iid4",
    "1": "iid1",
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
