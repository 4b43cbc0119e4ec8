"""Does confidence mean what it says? Bins for reliability diagrams, and calibration errors pooled over the set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from steep.analysis.cells import MODEL, Analysis, lines
from steep.bench.measure import ERROR_BINS
from steep.bench.rows import Row, grouped, pooled
from steep.bench.spec import label_of
from steep.metrics import Reliability


class Calibration(Analysis):
    """Reliability histograms of ten bins; ECE, MCE, Brier and NLL pooled over the set."""

    name = "calibration"
    recipe = "analyze-calibration"

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """For each method, over all its shifts and seeds taken as one set: ten bins, and the errors."""
        names = ("data", "source", *MODEL)
        methods = grouped(stored, lambda row: (label_of(row["spec"]), *(row["spec"].get(name) for name in names)))
        flat_rows = []
        for cells in methods.values():
            shifts = {(row["spec"]["shift"], row["spec"].get("severity", 0)) for row in cells}
            about = {
                "shift": ", ".join(sorted({name for name, _ in shifts})),
                "severity": max(level for _, level in shifts),
                "shifts": len(shifts),
                "seeds": len({row["spec"].get("seed", 0) for row in cells}),
                "seed": None,
            }
            flat_rows.append(self.flat(cells[0], **about, part="errors", **_errors(cells)))
            if (bars := _pooled(cells, "reliability")) is None:
                continue
            for index, count in enumerate(bars.counts):
                means = {name: getattr(bars, name)[index] if count else None for name in ("confidence", "accuracy")}
                ends = {"bin": index, "low": bars.edges[index], "high": bars.edges[index + 1], "n": count}
                flat_rows.append(self.flat(cells[0], **about, part="bin", **ends, **means))
        return flat_rows

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Print the errors of each method; errors on other sets are no comparison."""
        methods = [(name, row) for name, line in lines(rows, "errors") for row in line]
        sets = {(row["shift"], row["severity"], row["shifts"], row["seeds"]) for _, row in methods}
        apart = ["methods were not run on the same sets: do not compare them"] if len(sets) > 1 else []
        return apart + [
            f"{name}: ECE {row['ece']:.2%}, MCE {row['mce']:.2%}, Brier {row['brier']:.4f}, NLL {row['nll']:.4f}, "
            f"accuracy {row['accuracy']:.2%} over {row['n']:,} answers"
            + (f"; {row['nonfinite']} answers are not finite" if row["nonfinite"] else "")
            for name, row in methods
        ]


def _pooled(stored: Sequence[Row], name: str) -> Reliability | None:
    """Take the bins of several sets as those of one; None where a set has answers that are not finite."""
    bars = [row[name] for row in stored if row.get(name) is not None]
    return pooled(bars) if len(bars) == len(stored) else None


def _errors(stored: Sequence[Row]) -> dict[str, Any]:
    n = sum(row["n"] for row in stored)
    bars = _pooled(stored, "calibration")
    means = {}
    for name in ("accuracy", "brier", "nll"):
        finite = all(math.isfinite(row[name]) for row in stored)
        means[name] = math.fsum(row["n"] * row[name] for row in stored) / n if finite else math.nan
    return {
        "n": n,
        **means,
        "error_bins": ERROR_BINS,
        "ece": bars.ece if bars else math.nan,
        "mce": bars.mce if bars else math.nan,
        "nonfinite": sum(row.get("nonfinite", 0) for row in stored),
    }
