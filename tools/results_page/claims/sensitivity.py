"""TEA is stable over SGLD rate and steps, and first all along: from rows of `steep analyze sensitivity`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from steep.bench.rows import Row
from steep.methods import SOURCE
from steep.report.claims import baselines, decide
from steep.report.noise import Measured, Point, accuracy, places
from steep.report.paper import SUBJECT
from steep.report.tables import Table
from steep.report.words import number
from tools.results_page.claims.choosing import MODEL, about, limited, named
from tools.results_page.claims.placed import Claim, missing, provenance

STABLE = 1.0  # points; as much as a difference to the paper may be before it has to be explained
RANGES = {"sgld_rate": ("SGLD rate", 0.001, 0.4), "sgld_steps": ("SGLD steps", 1, 200)}  # TEA paper, appendix
DATA = "cifar10-c"


def stable(tables: Sequence[Table], analyses: Sequence[Row]) -> Iterator[Claim]:
    """Say how far accuracy spreads over the paper's range, and whether the worst value beats the best baseline."""
    for parameter, (name, low, high) in RANGES.items():
        where = named(DATA, MODEL)
        text = f"Accuracy stays within {STABLE:g} point over {name} {low:g}–{high:g}"
        ahead = f"TEA is the best method all over {name} {low:g}–{high:g}"
        rows = _fitting(analyses, parameter, low, high)
        values = _values(rows, low, high)
        if not _spans(values, low, high):
            here = f"; only {min(values):g} to {max(values):g} were run" if values else ""
            for one in (text, ahead):
                yield missing(one, where, f"no rows of steep analyze sensitivity over that range{here}")
            continue
        best, worst = (choose(values, key=lambda v: values[v].value) for choose in (max, min))
        spread = values[best] - values[worst]
        shifts, limit = len({row["shift"] for row in rows}), rows[0].get("limit")
        where += f", {shifts} corruption{'s' if shifts > 1 else ''}"
        part, weights = limited(limit), str(rows[0].get("weights_sha256"))[:12]
        seeds = [len({row.get("seed") for row in rows})]
        source = provenance(sorted({int(row["n"]) for row in rows}), seeds, [rows[0].get("run")])
        here = (
            f"{number(values[worst].value)} at {worst:g} to {number(values[best].value)} at {best:g}: "
            f"a spread of {number(spread.value)} points over {len(values)} values"
        )
        yield Claim(text, here, decide(Measured(STABLE - spread.value, spread.error)), where, source, part, weights)
        rival = _rival(tables, rows)
        if rival is None:
            yield missing(ahead, where, "no rows of the other methods on the same images")
        else:
            away = values[worst] - rival[0]
            here = f"at its worst, {worst:g}; against {rival[1]}: {away}"
            yield Claim(ahead, here, decide(away), where, source, part, weights)


def _fitting(analyses: Sequence[Row], parameter: str, low: float, high: float) -> list[Row]:
    """Give the points of one run: where there are several, of one over the whole range, then of most images."""
    parted: dict[tuple[Any, ...], list[Row]] = {}
    for row in analyses:
        wanted = (row["analysis"], row.get("part"), row.get("label"), row.get("data"), row.get("model"))
        if wanted == ("sensitivity", "point", SUBJECT, DATA, MODEL) and row.get("parameter") == parameter:
            parted.setdefault((row.get("run"), row.get("limit"), row.get("weights_sha256")), []).append(row)

    def fit(rows: Sequence[Row]) -> tuple[bool, int]:
        return _spans(_values(rows, low, high), low, high), sum(int(row["n"]) for row in rows)

    return max(parted.values(), key=fit, default=[])


def _values(rows: Sequence[Row], low: float, high: float) -> dict[float, Measured]:
    """Mean accuracy of each value in the range that has every shift of the run."""
    by_value: dict[float, dict[Point, list[Row]]] = {}
    for row in rows:
        if isinstance(row.get("value"), (int, float)):
            point = (row["shift"], row["severity"] or 0)
            cell = {"spec": {"seed": row.get("seed", 0)}, "accuracy": row["accuracy"], "n": row["n"]}
            by_value.setdefault(float(row["value"]), {}).setdefault(point, []).append(cell)
    every = {point for points in by_value.values() for point in points}
    means = {value: accuracy(points) for value, points in sorted(by_value.items()) if set(points) == every}
    return {value: mean for value, mean in means.items() if mean is not None and low <= value <= high}


def _spans(values: Collection[float], low: float, high: float) -> bool:
    """Whether both ends of a range are there."""
    return bool(values) and min(values) <= low and max(values) >= high


def _rival(tables: Sequence[Table], rows: Sequence[Row]) -> tuple[Measured, str] | None:
    """Find the best other method on the very images of some rows."""
    same = ("weights_sha256", "limit", "precision", "batch_size")
    points = {(row["shift"], row["severity"] or 0) for row in rows}
    usual: Mapping[str, Any] = next((row for row in rows if row.get("usual")), rows[0])
    rivals = []
    for table in about(tables, DATA, MODEL):
        if all(table.spec.get(name) == usual.get(name) for name in same):
            for line in baselines(table):
                rows_of = {p: r for p, r in places(line, [s for _, s in points]).items() if p in points}
                value = accuracy(rows_of) if set(rows_of) == points else None
                rivals += [(value, line.name)] if value is not None else []
    others = [pair for pair in rivals if pair[1] != SOURCE]
    return max(others, key=lambda pair: pair[0].value, default=None)
