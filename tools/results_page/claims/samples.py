"""Samples of the adapted model resemble the test set: what `steep analyze samples` can measure of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from steep.bench.rows import Row
from steep.report.claims.verdict import Claim, decided, missing, told
from steep.report.formats import number
from steep.report.noise import ERRORS, Measured

SETS = ("mnist", "mnist-rotated", "cifar10", "pacs")  # TEA paper, figures on distribution perception
OTHERS = ("source", "tent")
_PAPER = "the paper's pictures were made after 200 to 500 steps of 0.01 on each batch, by the published code's history"
_DISTANCES = {"mean_distance": "mean", "covariance_distance": "covariance"}


def closer(analyses: Sequence[Row]) -> Iterator[Claim]:
    """Say whether TEA's samples are closer to the test images, in mean and covariance, than other models'."""
    text = "Samples of TEA's model are closer to the test images than those of the source model and of TENT's"
    for data in SETS:
        rows = [
            row for row in analyses
            if (row["analysis"], row.get("part"), row.get("data")) == ("samples", "distance", data)
        ]  # fmt: skip
        places = _places(rows)
        whole = {name: own for name, own in places.items() if {"tea", "real", *OTHERS} <= set(own)}
        if not whole:
            yield missing(text, data, "no rows of steep analyze samples with tea, source and tent")
            continue
        said: list[str] = []
        nearer: list[Measured] = []
        for distance, name in _DISTANCES.items():
            ahead = [[_ahead(own, other, distance) for other in OTHERS] for own in whole.values()]
            nearer += [one for some in ahead for one in some]
            if len(whole) > 1:
                won = sum(all(one.value > 0 for one in some) for some in ahead)
                said.append(f"{name}: on {won} of {len(whole)} sets")
            else:
                (own,) = whole.values()
                told_of = (f"{label} {number(own[label][distance].value, 4)}" for label in ("tea", *OTHERS, "real"))
                said.append(f"{name}: {', '.join(told_of)}")
        seeds = len({row.get("seed") for row in rows})
        source = told(sorted({int(row["n"]) for row in rows}), [seeds], (row.get("run") for row in rows))
        floor = ["one seed: less than that is noise"] if seeds < 2 else []
        here = "; ".join([*said, "real: as many test images", *floor, _PAPER])
        yield Claim(text, here, decided(*nearer), data, source.replace("images a set", "samples"))
    pictures = sum(row["analysis"] == "samples" and row.get("part") == "picture" for row in analyses)
    seen = "pictures below: look for yourself" if pictures else "no pictures"
    yield missing("Samples look like the test images, to the eye", "", f"{seen}; no number says it")


def _places(rows: Sequence[Row]) -> dict[Any, dict[str, dict[str, Measured]]]:
    """Distances by set and label, means over seeds."""
    parted: dict[Any, dict[str, list[Row]]] = {}
    for row in rows:
        where = tuple(row.get(name) for name in ("run", "source", "shift", "severity"))
        parted.setdefault(where, {}).setdefault(row["label"], []).append(row)
    return {
        where: {
            label: {name: _mean([float(row[name]) for row in own]) for name in _DISTANCES}
            for label, own in labels.items()
        }
        for where, labels in parted.items()
    }


def _ahead(own: dict[str, dict[str, Measured]], other: str, distance: str) -> Measured:
    """How much closer TEA is than another. One seed has no spread: then what real images come to has to be beaten."""
    found = own[other][distance] - own["tea"][distance]
    return found if math.isfinite(found.error) else Measured(found.value, own["real"][distance].value / ERRORS)


def _mean(values: Sequence[float]) -> Measured:
    """Take the mean over seeds; the error of one is not known."""
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Measured(statistics.fmean(values), spread)
