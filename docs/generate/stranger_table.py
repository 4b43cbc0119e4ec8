"""What a stranger's first verdict costs, from the stored row."""

from __future__ import annotations

import json
from pathlib import Path

ROWS = Path(__file__).parents[2] / "results/stranger-cpu.jsonl"


def sentence() -> str:
    """Say how long the last run took from nothing to a verdict, and what the labels say of that."""
    row = json.loads(ROWS.read_text("utf-8").splitlines()[-1])
    seconds = row["environment_s"] + row["install_s"]
    model = row["model"].removesuffix("ForImageClassification")
    return (
        f"From nothing: a fresh environment with `.[hf]` took {seconds:.0f} seconds (from a near copy of the package "
        f"registry,\nwith torch's build for processors), and the command {row['command_s']:.0f}, "
        f"on {row['pictures']} pictures of CIFAR-10, {row['fog']} of them under fog, with a small {model}:\n"
        f"“{row['verdict']}” By their labels it is {row['gain']:+.1f}\n"
        f"([row](../results/stranger-cpu.jsonl): {row['device']}; `python -m benchmarks.stranger --folder PLACE`)."
    )
