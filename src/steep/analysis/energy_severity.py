"""Does a greater fall in energy go with a greater gain in accuracy? Both against severity, for each corruption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from steep.analysis.ranks import spearman
from steep.analysis.spec import Analysis, flat, lines, place
from steep.bench.rows import Row
from steep.methods import SOURCE

EVERYTHING = "all"
"""The `shift` of the rank correlation over all shifts and severities."""


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each cell that adapts, beside the source model on the same images; then the rank correlations.

    Where no source model was run on the same images, `accuracy_source` and `gain` are None.
    """
    sources = {place(row["spec"]): row["accuracy"] for row in stored if row["spec"]["method"] == SOURCE}
    points = []
    for row in stored:
        if row["spec"]["method"] == SOURCE:
            continue
        source = sources.get(place(row["spec"]))
        values = {name: row[name] for name in ("n", "accuracy", "energy_before", "energy_after")}
        values["energy_reduction"] = row["energy_before"] - row["energy_after"]
        values["accuracy_source"] = source
        values["gain"] = None if source is None else row["accuracy"] - source
        points.append((flat("energy-severity", row, part="point"), values))
    return [{**about, **values} for about, values in points] + _correlations(points)


def _correlations(points: Sequence[tuple[Row, dict[str, Any]]]) -> list[Row]:
    """Correlate, for each method over everything and over the severities of each shift, what has both numbers."""
    correlations = []
    for _, line in lines([{**about, **values} for about, values in points]):
        about = {name: value for name, value in line[0].items() if name not in points[0][1]}
        for shift in (EVERYTHING, *dict.fromkeys(row["shift"] for row in line)):
            pairs = [
                (row["energy_reduction"], row["gain"])
                for row in line
                if shift in (EVERYTHING, row["shift"])
                and row["gain"] is not None
                and math.isfinite(row["energy_reduction"])
            ]
            rank = spearman([a for a, _ in pairs], [b for _, b in pairs])
            of = {"part": "correlation", "shift": shift, "severity": None, "seed": None}
            correlations.append({**about, **of, "spearman": rank, "pairs": len(pairs)})
    return correlations


def summary(rows: Sequence[Row]) -> list[str]:
    """Print the rank correlations, and what is missing for them."""
    sentences = [
        f"{name}, {'all shifts' if row['shift'] == EVERYTHING else row['shift']}: rank correlation of energy reduction "
        f"and accuracy gain {row['spearman']:.2f} over {row['pairs']} points"
        for name, line in lines([row for row in rows if row["part"] == "correlation"])
        for row in line
        if row["shift"] == EVERYTHING or row["pairs"] >= 3
    ]
    alone = sum(row["part"] == "point" and row["gain"] is None for row in rows)
    if alone:
        sentences.append(f"{alone} cells have no source model on the same images: no gain is known for them")
    return sentences


ANALYSIS = Analysis(
    name="energy-severity",
    about="energy reduction and accuracy gain against severity, with their rank correlation",
    recipe="analyze-energy-severity",
    rows=rows,
    summary=summary,
)
