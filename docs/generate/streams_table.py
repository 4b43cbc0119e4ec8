"""The table of stream protocols: mean accuracy of every method, from stored rows."""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path

from steep.bench.rows import read

RESULTS = Path(__file__).parents[2] / "results"
FILES = {
    "continual": "continual-1000-h200",
    "mixed": "mixed-1000-h200",
    "label-shift": "label-shift-1000-h200",
    "reset, GroupNorm": "cifar10-c-gn-1000-h200",
}


@cache
def accuracies() -> dict[str, dict[str, float]]:
    """Percent by stream and method."""
    values: dict[str, dict[str, list[float]]] = {}
    for stream, name in FILES.items():
        for row in read(RESULTS / f"{name}.jsonl"):
            spec = row["spec"]
            if (spec["severity"], spec["setting"], spec["label"]) == (5, "paper", spec["method"]):
                values.setdefault(stream, {}).setdefault(spec["method"], []).append(100 * row["accuracy"])
    return {stream: {name: statistics.mean(v) for name, v in methods.items()} for stream, methods in values.items()}


def best(stream: str) -> str:
    """Name the method that leads on a stream."""
    methods = accuracies()[stream]
    return max(methods, key=methods.__getitem__)


def table() -> str:
    """A line for each method; the best of each stream is bold."""
    streams = accuracies()
    lines = ["| method | " + " | ".join(streams) + " |", "|---|" + "---:|" * len(streams)]
    for name in streams["continual"]:
        values = [(stream, methods.get(name)) for stream, methods in streams.items()]
        cells = ["–" if v is None else f"**{v:.1f}**" if best(s) == name else f"{v:.1f}" for s, v in values]
        lines.append(f"| [{name}](methods.md#{name}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)
