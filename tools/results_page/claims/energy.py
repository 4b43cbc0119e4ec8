"""A greater fall in energy goes with a greater gain in accuracy: a rank correlation over corruptions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from steep.bench.rows import Row
from steep.report.claims.verdict import FAILS, HOLDS, NOISE, Claim, line_of, missing, origin, told, viewed
from steep.report.figures import energy_points
from steep.report.formats import number
from steep.report.paper import benchmark
from steep.report.statistics import chance_of, rank_correlation
from steep.report.tables import Table
from tools.results_page.claims.choosing import CORRUPTED, EVERY, MODEL, fitting, limited, named

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
            rank, chance = rank_correlation(falls, gains), chance_of(falls, gains)
            if rank is None or chance is None:
                yield missing(text, where, "neither changes from corruption to corruption")
                continue
            here = f"rank correlation {number(rank)} over 15 corruptions (p = {_chance(chance)}, by permutation)"
            if len(severities) > 1:
                every = rank_correlation([p[0] for p in points.values()], [p[1] for p in points.values()])
                here += f"; {number(every)} over all {len(points)} points, which hang together"
            verdict = NOISE if chance >= SURE else HOLDS if rank > 0 else FAILS
            yield Claim(text, here, verdict, where, source, part)


def _measured(
    tables: Sequence[Table], analyses: Sequence[Row], data: str, severities: Sequence[int]
) -> tuple[Points, str, str]:
    """Take the points of a table or, where none has them, those of an analysis; and where they come from."""
    for table in fitting(tables, data, MODEL, "", severities):
        tea, source = line_of(table, "tea"), line_of(table, "source")
        own = {(p["shift"], p["severity"]): (p["reduction"], p["gain"]) for p in energy_points(table)
               if p["method"] == "tea"}  # fmt: skip
        whole = len(own) == len(severities) * len(benchmark())
        if whole and tea is not None and source is not None:
            return own, origin(viewed(table, tea, source)), limited(table.spec.get("limit"))
    parted: dict[tuple[object, ...], dict[tuple[str, int], list[Row]]] = {}
    for row in analyses:
        about = (row["analysis"], row.get("part"), row.get("label"), row.get("data"), row.get("model"))
        if about == ("energy-severity", "point", "tea", data, MODEL) and row.get("gain") is not None:
            run = parted.setdefault((row.get("run"), row.get("limit"), row.get("weights_sha256")), {})
            if row["severity"] in severities and row["shift"] in benchmark():
                run.setdefault((row["shift"], row["severity"]), []).append(row)
    for (file, limit, _), found in parted.items():
        rows = [row for own in found.values() for row in own]
        if len(found) == len(severities) * len(benchmark()):
            points = {
                place: (
                    statistics.fmean(row["energy_reduction"] for row in own),
                    100 * statistics.fmean(row["gain"] for row in own),
                )
                for place, own in found.items()
            }
            seeds = len({row.get("seed") for row in rows})
            part = limited(limit if isinstance(limit, int) else None)
            return points, told(sorted({int(row["n"]) for row in rows}), [seeds], [file]), part
    return {}, "", ""


def _chance(value: float) -> str:
    return f"{value:.4f}" if value < 0.01 else f"{value:.2f}"
