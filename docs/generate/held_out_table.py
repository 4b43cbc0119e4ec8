"""The table of the page "Infuse": trials on corruptions that no benchmark has, from stored rows."""

from __future__ import annotations

import statistics
from pathlib import Path

from steep.bench.rows import read

ROWS = Path(__file__).parents[2] / "results/tried/infuse-held-out-cpu.jsonl"


def table() -> str:
    """A line for each trial, a column for each stream; the best of each is bold."""
    values: dict[str, dict[str, list[float]]] = {}
    images: dict[str, int] = {}
    for row in read(ROWS):
        spec = row["spec"]
        stream = f"{spec['protocol'].replace('-', ' ')}, batches of {spec['batch_size']}"
        values.setdefault(spec["label"], {}).setdefault(stream, []).append(100 * row["accuracy"])
        images[spec["label"]] = images.get(spec["label"], 0) + row["n"]
    streams = list(dict.fromkeys(stream for trial in values.values() for stream in trial))
    best = {stream: max(statistics.mean(trial[stream]) for trial in values.values()) for stream in streams}
    lines = ["| trial | " + " | ".join(streams) + " |", "|---|" + "---:|" * len(streams)]
    for label, trial in values.items():
        means = [statistics.mean(trial[stream]) for stream in streams]
        cells = [
            f"**{mean:.1f}**" if mean == best[s] else f"{mean:.1f}" for s, mean in zip(streams, means, strict=True)
        ]
        lines.append(f"| {label.replace('-', ' ', 1)} | " + " | ".join(cells) + " |")
    spec = row["spec"]
    note = (
        f"Percent, mean over the four corruptions at severity {spec['severity']}; {spec['model']}, "
        f"{spec['precision']}, one seed, {max(images.values()) // len(streams):,} images in each column."
    )
    return "\n".join([*lines, "", note])
