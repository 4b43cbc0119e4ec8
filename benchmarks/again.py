"""Stored rows again on this machine's processor: one for each method that has a row of under a minute.

    python -m benchmarks.again --root DATA      # DATA holds CIFAR-10 (docs/data.md); about two minutes on two cores

Rows come from results/wrn-40-2-cpu.jsonl, the model from the package. A row must have the same key and the same
accuracy; the last digits of the energies may differ between processors. The exit status is 1 where one differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from steep.bench.cell import run
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.training.weights import find_weights

ROWS = Path(__file__).parents[1] / "results" / "wrn-40-2-cpu.jsonl"
LONGEST = 60.0  # seconds


def shortest_rows(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Choose the row of each method that took the fewest seconds, where that is under a minute."""
    rows: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name, seconds = row["spec"]["method"], row["seconds"]
        if seconds < LONGEST and (name not in rows or seconds < rows[name]["seconds"]):
            rows[name] = row
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where data lives")
    arguments = parser.parse_args()
    rows, differ = shortest_rows(), 0
    names = {row["spec"]["weights"] for row in rows.values()}
    weights = {name: path for name in names if (path := find_weights(name, root=arguments.root)) is not None}
    sources = Sources(arguments.root, weights)
    for name, row in rows.items():
        cell = Cell.from_json(row["spec"])
        # `auto` may choose another precision on this processor than on the one that the row is of
        again = run(replace(cell, precision=row["env"]["precision"]), sources)
        same = cell.key() == row["key"] and again["accuracy"] == row["accuracy"]
        differ += not same
        verdict = "same" if same else "DIFFERS"
        print(
            f"{name:9} {row['spec']['shift']:18} {row['accuracy']:.4f} {again['accuracy']:.4f}  {verdict}", flush=True
        )
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main())
