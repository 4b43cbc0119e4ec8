"""Real pictures of ImageNet with an EfficientNet-Lite0: what normalising and infuse do, from stored rows."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from steep.bench.rows import read
from steep.methods import SOURCE

RESULTS = Path(__file__).parents[2] / "results/real-pictures"
BENCH, HELD_OUT = RESULTS / "imagenet-c-lite0-h200.jsonl", RESULTS / "lite0-held-out-h200.jsonl"
GUARDED = RESULTS / "lite0-guard-cpu.jsonl"


def held_out() -> str:
    """All pictures, with the guard as it was."""
    return _by_set(HELD_OUT, {"off": "", "recover": ", guard as it was"})


def guarded() -> str:
    """Some of the pictures, with the guard as it is."""
    return _by_set(GUARDED, {"off": ", no guard", "recover": ", default guard"})


def _by_set(file: Path, guards: dict[str, str]) -> str:
    """A line for each method, a column for each set of pictures."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    sets = list(dict.fromkeys((row["shift"], row["severity"]) for row in rows))
    by_line: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        rate = f", rate {row['hyper']['lr']:g}" if row["hyper"] else ""
        name = f"{row['method']}{rate}{guards[row['guard']] if row['method'] != SOURCE else ''}"
        by_line.setdefault(name, {})[row["shift"], row["severity"]] = 100 * row["accuracy"]
    heads = [f"{shift.replace('_', ' ')} {severity or ''}".strip() for shift, severity in sets]
    table = ["| method | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(sets)]
    for name, values in by_line.items():
        cells = [f"{values[each]:.1f}" if each in values else "–" for each in sets]
        table.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def benchmark() -> str:
    """A line for each method that has all of ImageNet-C: clean, and the mean over the 15 corruptions."""
    by_line: dict[str, dict[int, list[float]]] = {}
    for row in read(BENCH):
        spec = row["spec"]
        by_line.setdefault(spec["label"] or spec["method"], {}).setdefault(spec["severity"], []).append(row["accuracy"])
    means = {name: {s: 100 * statistics.fmean(v) for s, v in values.items()} for name, values in by_line.items()}
    table = ["| method | clean | severity 3 | severity 5 | above source, severity 3 |", "|---|---:|---:|---:|---:|"]
    for name, mean in sorted(means.items(), key=lambda line: -line[1][3]):
        gain = f"{mean[3] - means[SOURCE][3]:+.1f}".replace("-", "−") if name != SOURCE else "–"
        table.append(f"| {name} | " + " | ".join(f"{mean[s]:.1f}" for s in (0, 3, 5)) + f" | {gain} |")
    return "\n".join(table)
