"""The table of the page "Infuse": trials on corruptions that no benchmark has, from stored rows."""

from __future__ import annotations

import statistics
from pathlib import Path

from steep.bench.rows import read

ROWS = Path(__file__).parents[2] / "results/tried/infuse-held-out-cpu.jsonl"


def table() -> str:
    """A line for each trial, the best in the mean first; the best of each column is bold."""
    rows = list(read(ROWS))
    trials: dict[str, dict[str, float]] = {}
    for row in rows:
        trials.setdefault(row["spec"]["label"], {})[row["spec"]["shift"].replace("_", " ")] = 100 * row["accuracy"]
    for trial in trials.values():
        trial["mean"] = statistics.mean(trial.values())
    columns = list(next(iter(trials.values())))
    best = {column: max(trial[column] for trial in trials.values()) for column in columns}
    lines = ["| trial | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for label, trial in sorted(trials.items(), key=lambda item: -item[1]["mean"]):
        cells = [f"**{trial[c]:.1f}**" if trial[c] == best[c] else f"{trial[c]:.1f}" for c in columns]
        lines.append(f"| {label.replace('-', ' ', 1)} | " + " | ".join(cells) + " |")
    spec = rows[0]["spec"]
    note = (
        f"Percent at severity {spec['severity']}, {rows[0]['n']} images of each corruption in batches of "
        f"{spec['batch_size']}; {spec['model']}, {spec['precision']}, one seed, on a CPU: differences below two points "
        "in a column say little."
    )
    return "\n".join([*lines, "", note])
