"""Does a greater fall in energy go with a greater gain in accuracy? Both against severity, for each corruption."""

from __future__ import annotations

import math
from collections.abc import Sequence

from steep.analysis.ranks import spearman
from steep.analysis.spec import Analysis, flat, lines, place
from steep.bench.rows import Row

EVERYTHING = "all"
"""The `shift` of the rank correlation over all shifts and severities."""


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each cell that adapts, beside the source model on the same images; then the rank correlations.

    Where no source model was run on the same images, `accuracy_source` and `gain` are None.
    """
    sources = {place(row["spec"]): row["accuracy"] for row in stored if row["spec"]["method"] == "source"}
    found = []
    for row in stored:
        if row["spec"]["method"] == "source":
            continue
        source = sources.get(place(row["spec"]))
        values = {name: row[name] for name in ("n", "accuracy", "energy_before", "energy_after")}
        values["energy_reduction"] = row["energy_before"] - row["energy_after"]
        values["accuracy_source"] = source
        values["gain"] = None if source is None else row["accuracy"] - source
        found.append(flat("energy-severity", row, part="point", **values))
    return found + _correlations(found)


def _correlations(points: Sequence[Row]) -> list[Row]:
    """Correlate, for each method over everything and over the severities of each shift, what has both numbers."""
    found = []
    for _, own in lines(points):
        for shift in (EVERYTHING, *dict.fromkeys(row["shift"] for row in own)):
            pairs = [
                (row["energy_reduction"], row["gain"])
                for row in own
                if (shift == EVERYTHING or row["shift"] == shift)
                and row["gain"] is not None
                and math.isfinite(row["energy_reduction"])
            ]
            rank = spearman([a for a, _ in pairs], [b for _, b in pairs])
            about = {"part": "correlation", "shift": shift, "severity": None, "seed": None}
            kept = {name: value for name, value in own[0].items() if name not in _OF_A_POINT}
            found.append({**kept, **about, "spearman": rank, "pairs": len(pairs)})
    return found


_OF_A_POINT = (
    *("n", "accuracy", "energy_before", "energy_after"),
    *("energy_reduction", "accuracy_source", "gain"),
)


def summary(found: Sequence[Row]) -> list[str]:
    """Print the rank correlations, and what is missing for them."""
    told = []
    for name, own in lines(found):
        for row in own:
            if row["part"] == "correlation" and (row["shift"] == EVERYTHING or row["pairs"] >= 3):
                where = "all shifts" if row["shift"] == EVERYTHING else row["shift"]
                told.append(
                    f"{name}, {where}: rank correlation of energy reduction and accuracy gain "
                    f"{row['spearman']:.2f} over {row['pairs']} points"
                )
    lone = sum(row["part"] == "point" and row["gain"] is None for row in found)
    if lone:
        told.append(f"{lone} cells have no source model on the same images: no gain is known for them")
    return told


ANALYSIS = Analysis(
    name="energy-severity",
    about="energy reduction and accuracy gain against severity, with their rank correlation",
    recipe="analyze-energy-severity",
    rows=rows,
    summary=summary,
)
