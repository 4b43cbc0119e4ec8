"""Auto beside fixed methods over everything that was measured with it: how much is lost by not knowing the best one."""

from __future__ import annotations

import statistics
from pathlib import Path

import safety_table
from steep.bench.rows import read
from steep.methods import METHODS, SOURCE

ROWS = Path(__file__).parents[2] / "results/tried/auto-wrn-40-2-cpu.jsonl"
CHOOSES = "auto"


def situations() -> dict[str, dict[str, float]]:
    """Percent, by situation and method: streams of the 15 corruptions, then those made to mislead."""
    values: dict[str, dict[str, dict[str, float]]] = {}
    for row in read(ROWS):
        spec = row["spec"]
        name = spec["label"] or spec["method"]
        values.setdefault(spec["protocol"], {}).setdefault(name, {})[spec["shift"]] = 100 * row["accuracy"]
    means = {}
    for protocol, methods in values.items():
        shifts = max(map(len, methods.values()))
        means[protocol] = {name: statistics.mean(v.values()) for name, v in methods.items() if len(v) == shifts}
    for stream, methods in safety_table.gains().items():
        means[stream] = {
            name: 100 * row["accuracy"] for name, (_, row) in methods.items() if row["n"] == methods[SOURCE][1]["n"]
        }
    return means


def corruptions() -> str:
    """Mean accuracy over the 15 corruptions, a column for each kind of stream."""
    means = {name: methods for name, methods in situations().items() if name not in safety_table.gains()}
    names = list(dict.fromkeys(name for methods in means.values() for name in methods))
    lines = ["| method | " + " | ".join(means) + " |", "|---|" + "---:|" * len(means)]
    for name in names:
        cells = [f"{methods[name]:.1f}" if name in methods else "–" for methods in means.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def regrets() -> str:
    """A line for each method that was run in every situation."""
    every = situations()
    names = [name for name in METHODS if all(name in methods for methods in every.values())]
    best = {s: max(methods[name] for name in names if name != CHOOSES) for s, methods in every.items()}
    lines = ["| method | mean regret | largest regret | worst beside the source model |", "|---|---:|---|---|"]
    for name in sorted(names, key=lambda name: statistics.mean(best[s] - every[s][name] for s in every)):
        regret = {s: best[s] - methods[name] for s, methods in every.items()}
        gain = {s: methods[name] - methods[SOURCE] for s, methods in every.items()}
        most, least = max(regret, key=regret.__getitem__), min(gain, key=gain.__getitem__)
        worst = "–" if name == SOURCE else f"{gain[least]:+.1f} ({least})".replace("-", "−", 1)
        lines.append(
            f"| {name} | {statistics.mean(regret.values()):.1f} | {regret[most]:.1f} ({most}) | {worst} |".replace(
                "| -", "| −"
            )
        )
    return "\n".join([*lines, "", f"{len(every)} situations."])
