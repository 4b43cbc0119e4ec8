"""The table of the server under load, from stored rows."""

from __future__ import annotations

import json
from pathlib import Path

ROWS = Path(__file__).parents[2] / "results/serve-cpu.jsonl"


def table() -> str:
    """A line for each run of the load test, and below it where they ran."""
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    heads = ["method", "clients", "queue", "killed", "answered", "lost, wrong or out of order", "refused"]
    heads += ["p50 (s)", "p99 (s)", "answers/s", "pictures a batch", "as the source model (by chance)"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        bad = row["lost"] + row["wrong"] + row["out_of_order"]
        cells = [row["method"], row["clients"], row["waiting"], len(row["kills"]), row["answered"], bad, row["refused"]]
        cells += [f"{row['p50_ms'] / 1000:.2f}", f"{row['p99_ms'] / 1000:.2f}", f"{row['images_per_s']:.1f}"]
        cells += [f"{row['batch_mean']:.1f}", f"{row['agree_with_source']:.0%} ({row['agree_by_chance']:.0%})"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    first, load = rows[0], max(row["load_before"] for row in rows)
    where = f"{first['model']}, {first['seconds']:.0f} s each, {first['device']}"
    load = f"{first['cores']} cores, with a load of at most {load:.1f} before each run (that of the run before it)"
    kills = [f"{kill['batches']}, and went on from {kill['resumed_at']}" for row in rows for kill in row["kills"]]
    return "\n".join(
        [*lines, "", f"{where}; {load}.", f"Killed when the state had seen batch {'; batch '.join(kills)}."]
    )
