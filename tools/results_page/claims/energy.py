"""A greater fall in energy goes with a greater gain in accuracy: a rank correlation over corruptions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import rankdata

from steep.analysis.energy import spearman
from steep.bench.rows import Row
from steep.methods import SOURCE
from steep.report.claims import FAILS, HOLDS, NOISE, line_of
from steep.report.figures import energy_points
from steep.report.paper import SUBJECT, benchmark
from steep.report.tables import Table
from steep.report.words import number
from tools.results_page.claims.choosing import CORRUPTED, EVERY, MODEL, fitting, limited, named
from tools.results_page.claims.placed import Claim, missing, origin, provenance, viewed

SURE = 0.05  # the chance, by shuffling, under which a correlation counts

Points = dict[tuple[str, int], tuple[float, float]]  # (shift, severity) → energy reduction, gain in points


def correlates(tables: Sequence[Table], analyses: Sequence[Row]) -> Iterator[Claim]:
    """Correlate over the 15 corruptions, at severity 5 and as means over all severities."""
    text = "The more TEA lowers the energy, the more accuracy it gains"
    for data in CORRUPTED:
        for severities in ((5,), EVERY):
            where = named(data, MODEL, severities=severities)
            points, source, part = _measured(tables, analyses, data, severities)
            if set(points) != {(shift, level) for shift in benchmark() for level in severities}:
                yield missing(text, where, "no rows of tea and source on all 15 corruptions with their energies")
                continue
            pairs = [
                [statistics.fmean(points[shift, level][i] for level in severities) for i in (0, 1)]
                for shift in benchmark()
            ]
            falls, gains = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            rank = spearman(falls, gains)
            if math.isnan(rank):
                yield missing(text, where, "neither changes from corruption to corruption")
                continue
            chance = chance_of(falls, gains)
            here = f"rank correlation {number(rank)} over 15 corruptions (p = {_chance(chance)}, by permutation)"
            if len(severities) > 1:
                every = spearman([p[0] for p in points.values()], [p[1] for p in points.values()])
                here += f"; {number(every)} over all {len(points)} points, which hang together"
            verdict = NOISE if chance >= SURE else HOLDS if rank > 0 else FAILS
            yield Claim(text, here, verdict, where, source, part)


def _measured(
    tables: Sequence[Table], analyses: Sequence[Row], data: str, severities: Sequence[int]
) -> tuple[Points, str, str]:
    """Take the points of a table or, where none has them, those of an analysis; and where they come from."""
    for table in fitting(tables, data, MODEL, "", severities):
        tea, source = line_of(table, SUBJECT), line_of(table, SOURCE)
        points = {(p["shift"], p["severity"]): (p["reduction"], p["gain"]) for p in energy_points(table)
               if p["method"] == SUBJECT}  # fmt: skip
        whole = len(points) == len(severities) * len(benchmark())
        if whole and tea is not None and source is not None:
            return points, origin(viewed(table, tea, source)), limited(table.spec.get("limit"))
    parted: dict[tuple[object, ...], dict[tuple[str, int], list[Row]]] = {}
    for row in analyses:
        about = (row["analysis"], row.get("part"), row.get("label"), row.get("data"), row.get("model"))
        if about == ("energy-severity", "point", SUBJECT, data, MODEL) and row.get("gain") is not None:
            run = parted.setdefault((row.get("run"), row.get("limit"), row.get("weights_sha256")), {})
            if row["severity"] in severities and row["shift"] in benchmark():
                run.setdefault((row["shift"], row["severity"]), []).append(row)
    for (file, limit, _), by_place in parted.items():
        rows = [row for cells in by_place.values() for row in cells]
        if len(by_place) == len(severities) * len(benchmark()):
            points = {
                place: (
                    statistics.fmean(row["energy_reduction"] for row in cells),
                    100 * statistics.fmean(row["gain"] for row in cells),
                )
                for place, cells in by_place.items()
            }
            seeds = len({row.get("seed") for row in rows})
            part = limited(limit if isinstance(limit, int) else None)
            return points, provenance(sorted({int(row["n"]) for row in rows}), [seeds], [file]), part
    return {}, "", ""


def chance_of(first: Sequence[float], second: Sequence[float], times: int = 10_000) -> float:
    """Give how often a shuffled pairing has a rank correlation as far from zero: a permutation test, two-sided.

    >>> chance_of([1, 2, 3], [1, 2, 3]) > 0.3  # 2 of 6 pairings
    True
    """
    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (first, second))
    draw = np.random.default_rng(0)  # the same rows give the same page
    shuffled = draw.permuted(np.tile(b, (times, 1)), axis=1)
    far = np.abs(shuffled @ a) >= abs(a @ b) * (1 - 1e-9)
    return float((far.sum() + 1) / (times + 1))


def _chance(value: float) -> str:
    return f"{value:.4f}" if value < 0.01 else f"{value:.2f}"
