"""What other streams, and a model without BatchNorm, do to every method: mean accuracies of the stored rows."""

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
    found: dict[str, dict[str, list[float]]] = {}
    for stream, name in FILES.items():
        for row in read(RESULTS / f"{name}.jsonl"):
            spec = row["spec"]
            if (spec["severity"], spec["setting"], spec["label"]) == (5, "paper", spec["method"]):
                found.setdefault(stream, {}).setdefault(spec["method"], []).append(100 * row["accuracy"])
    return {stream: {name: statistics.mean(own) for name, own in by.items()} for stream, by in found.items()}


def best(stream: str) -> str:
    """Name the method that leads on a stream."""
    own = accuracies()[stream]
    return max(own, key=own.__getitem__)


def table() -> str:
    """A line for each method; the best of each stream is bold."""
    found = accuracies()
    out = ["| method | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    for name in found["continual"]:
        cells = [(stream, by.get(name)) for stream, by in found.items()]
        told = ["–" if v is None else f"**{v:.1f}**" if best(s) == name else f"{v:.1f}" for s, v in cells]
        out.append(f"| [{name}](methods.md#{name}) | " + " | ".join(told) + " |")
    return "\n".join(out)
