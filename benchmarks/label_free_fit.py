"""Fit the label-free estimate of `steep.compare` to rows of `benchmarks.label_free`.

    python -m benchmarks.label_free_fit results/label-free-*.jsonl --write src/steep/comparing/estimate.toml

Ridge regression without a constant, from differences of signs to the gain, on the rows of part "fit" alone. Each model
and data set weighs the same. The interval is conformal: a quantile of residuals, each of a fit without its own
model and data set. Where that calls more than 5 % of the harmful cases helpful, it is widened until it does not.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steep.comparing.estimate import SIGNS

LEVEL, MOST_WRONG, RIDGE = 0.9, 0.05, 1e-4
Row = dict[str, Any]
Numbers = npt.NDArray[np.float64]


def read(files: Sequence[Path]) -> list[Row]:
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def differences(rows: Sequence[Row]) -> Numbers:
    return np.array([[row["signs"][name] - row["signs_source"][name] for name in SIGNS] for row in rows])


def gains(rows: Sequence[Row]) -> Numbers:
    return np.array([row["accuracy"] - row["accuracy_source"] for row in rows])


def changed(rows: Sequence[Row]) -> Numbers:
    return np.array([row["changed"] for row in rows])


def balance(rows: Sequence[Row]) -> Numbers:
    """Weigh rows so that each model and data set counts the same."""
    count = Counter(source(row) for row in rows)
    return np.array([1 / (len(count) * count[source(row)]) for row in rows])


def source(row: Row) -> str:
    return f"{row['model']}, {row['data']}"


def weights(rows: Sequence[Row]) -> Numbers:
    x, w = differences(rows), balance(rows)
    return np.linalg.solve((x.T * w) @ x + RIDGE * np.eye(len(SIGNS)), (x.T * w) @ gains(rows))


def accuracy_weights(rows: Sequence[Row]) -> Numbers:
    """Fit accuracies, adapted or not, to the signs but the last, and a constant."""
    x = np.concatenate([with_constant(rows, "signs_source"), with_constant(rows, "signs")])
    right = np.array([row[key] for key in ("accuracy_source", "accuracy") for row in rows])
    w = np.tile(balance(rows), 2)
    return np.linalg.solve((x.T * w) @ x + RIDGE * np.eye(4), (x.T * w) @ right)


def with_constant(rows: Sequence[Row], whose: str) -> Numbers:
    return np.array([[*(row[whose][name] for name in SIGNS[:3]), 1.0] for row in rows])


def estimates(rows: Sequence[Row], fitted: Numbers) -> Numbers:
    most = changed(rows)
    return np.clip(differences(rows) @ fitted, -most, most)


def left_out(rows: Sequence[Row], group: Callable[[Row], str]) -> Numbers:
    """Estimate every row by a fit to the rows of all other groups."""
    result = np.zeros(len(rows))
    for name in {group(row) for row in rows}:
        inside = np.array([group(row) == name for row in rows])
        fitted = weights([row for row in rows if group(row) != name])
        result[inside] = estimates([row for row in rows if group(row) == name], fitted)
    return result


def interval(rows: Sequence[Row], level: float = LEVEL) -> float:
    """Find the half width of the interval, in units of the root of the share of changed images."""
    some = [row for row in rows if row["changed"] > 0]
    guess, truth, root = left_out(some, source), gains(some), np.sqrt(changed(some))
    ratio, w = np.abs(guess - truth) / root, balance(some)
    order = np.argsort(ratio)
    width = float(ratio[order][np.searchsorted(np.cumsum(w[order]), min(1.0, level * (1 + 1 / len(some))))])
    harmful = truth < 0
    tempting = np.sort((guess / root)[harmful])  # widths below these call a harmful case helpful
    return max(width, float(tempting[int(np.ceil((1 - MOST_WRONG) * len(tempting))) - 1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, required=True)
    asked = parser.parse_args()
    rows = [row for row in read(asked.rows) if row["part"] == "fit"]
    fitted, width = weights(rows), interval(rows)
    *accuracy, base = accuracy_weights(rows)
    counts = Counter(source(row) for row in rows)
    text = [
        "# Written by benchmarks/label_free_fit.py from the rows named here; docs/compare.md says how right it is.",
        f"rows = {json.dumps([file.name for file in asked.rows])}",
        f"fitted_to = {json.dumps(' · '.join(f'{name}: {count} rows' for name, count in sorted(counts.items())))}",
        f"base = {base:.3f}  # accuracy where every sign is 0",
        f"interval = {width:.3f}  # half its width, times √(share of the images that change their class)",
        f"level = {LEVEL}",
        "",
        "[gain]  # points for each point that a sign differs from the source model's",
        *(f"{name} = {value:.3f}" for name, value in zip(SIGNS, fitted, strict=True)),
        "",
        "[accuracy]  # points for each point of a sign",
        *(f"{name} = {value:.3f}" for name, value in zip(SIGNS[:3], accuracy, strict=True)),
    ]
    asked.write.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
