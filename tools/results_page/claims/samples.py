"""Samples of the adapted model resemble the test set: what `steep analyze samples` can measure of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from steep.bench.rows import Row
from steep.methods import SOURCE
from steep.report.claims import decide
from steep.report.noise import ERRORS, Measured
from steep.report.paper import SUBJECT
from steep.report.words import data_title, number
from tools.results_page.claims.placed import Claim, missing, provenance

SETS = ("mnist", "mnist-rotated", "cifar10", "pacs")  # TEA paper, figures on distribution perception
OTHERS = (SOURCE, "tent")
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
        whole = {name: labels for name, labels in places.items() if {SUBJECT, "real", *OTHERS} <= set(labels)}
        if not whole:
            yield missing(text, data_title(data), "no rows of steep analyze samples with tea, source and tent")
            continue
        words: list[str] = []
        nearer: list[Measured] = []
        for distance, name in _DISTANCES.items():
            ahead = [[_ahead(labels, other, distance) for other in OTHERS] for labels in whole.values()]
            nearer += [one for some in ahead for one in some]
            if len(whole) > 1:
                won = sum(all(one.value > 0 for one in some) for some in ahead)
                words.append(f"{name}: on {won} of {len(whole)} sets")
            else:
                (labels,) = whole.values()
                values = {label: labels[label][distance].value for label in (SUBJECT, *OTHERS, "real")}
                words.append(f"{name}: {', '.join(f'{label} {number(v, 4)}' for label, v in values.items())}")
        seeds = len({row.get("seed") for row in rows})
        source = provenance(sorted({int(row["n"]) for row in rows}), [seeds], (row.get("run") for row in rows))
        floor = ["one seed: less than that is noise"] if seeds < 2 else []
        here = "; ".join([*words, "real: as many test images", *floor, _PAPER])
        yield Claim(text, here, decide(*nearer), data_title(data), source.replace("images a set", "samples"))
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
            label: {name: _mean([float(row[name]) for row in cells]) for name in _DISTANCES}
            for label, cells in labels.items()
        }
        for where, labels in parted.items()
    }


def _ahead(distances: dict[str, dict[str, Measured]], other: str, distance: str) -> Measured:
    """How much closer TEA is than another. One seed has no spread: then what real images come to has to be beaten."""
    ahead = distances[other][distance] - distances[SUBJECT][distance]
    return ahead if math.isfinite(ahead.error) else Measured(ahead.value, distances["real"][distance].value / ERRORS)


def _mean(values: Sequence[float]) -> Measured:
    """Take the mean over seeds; the error of one is not known."""
    spread = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Measured(statistics.fmean(values), spread)
