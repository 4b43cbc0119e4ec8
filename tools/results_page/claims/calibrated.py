"""TEA is the best calibrated of source, TENT, SHOT and TEA: by expected and by maximum calibration error.

The paper calls the maximum calibration error MCE. It has nothing to do with mCE, the mean corruption error. It is the
gap of one bin, often of the emptiest: how many answers lie in it is shown, and its standard error decides. There are
ten bins, as in the published code. That averages the errors of batches; ours are of all answers pooled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steep import recipes
from steep.bench.rows import Row, pooled
from steep.metrics import Reliability
from steep.report.claims import NOISE, decide, line_of
from steep.report.noise import Measured, bars_of, calibration_error, places, whole_seeds
from steep.report.paper import SUBJECT, benchmark
from steep.report.tables import Table
from steep.report.words import model_title, number
from tools.results_page.claims.choosing import MODEL, about, limited, named
from tools.results_page.claims.placed import Claim, missing, origin, provenance

COMPARED: tuple[str, ...] = tuple(recipes.paper()["claims"]["calibration_compared"])
DATA, BINS = "cifar10-c", "reliability"
FEW = 30
"""Of fewer answers than this a bin's accuracy has no interval worth printing."""

_SETS = {
    "clean": f"CIFAR-10, clean images · {model_title(MODEL)}",
    "corrupted": f"{named(DATA, severities=(5,))}, 15 corruptions as one set · {model_title(MODEL)}",
}


@dataclass(frozen=True)
class Calibration:
    """Expected and maximum calibration error of some answers, in percent, and how many there were."""

    expected: Measured
    maximum: Measured
    worst: int  # answers in the bin that the maximum is of
    n: int


def calibration(bars: Reliability | None, seeds: int = 1) -> Calibration | None:
    """Take the mean and the largest gap between confidence and accuracy; None where there are no bins.

    >>> bars = pooled([{"counts": [25, 75], "confidence": [0.5, 0.9], "accuracy": [0.8, 0.8]}])
    >>> errors = calibration(bars)
    >>> round(errors.expected.value, 6), round(errors.maximum.value, 6), errors.worst
    (15.0, 30.0, 25)
    """
    if bars is None:
        return None
    bins = [part for part in zip(bars.counts, bars.gaps, bars.accuracy, strict=True) if part[0]]
    count, gap, right = max(bins, key=lambda part: part[1])
    likely = (right * count + 1) / (count + 2)  # three right answers of three do not make the fourth one sure
    maximum = Measured(100 * gap, 100 * math.sqrt(seeds * likely * (1 - likely) / count))
    return Calibration(calibration_error(bars, seeds), maximum, count, sum(bars.counts))


@dataclass(frozen=True)
class _Measured:
    errors: Mapping[str, Calibration]  # of ten bins
    finer: Mapping[str, Calibration]  # of 15, where rows hold them
    origin: str
    limit: int | None


def best_calibrated(tables: Sequence[Table], analyses: Sequence[Row]) -> Iterator[Claim]:
    """Compare on clean images, as the paper does, and on corrupted ones."""
    paper = recipes.paper()["claims"]
    for kind, where in _SETS.items():
        texts = {
            "expected": "TEA has the lowest expected calibration error (ECE, ten bins) of source, TENT, SHOT and TEA",
            "maximum": "TEA has the lowest maximum calibration error (the paper's MCE; ten bins) of these four",
        }
        printed = {"expected": paper["ece_reduction"], "maximum": paper["mce_reduction"]}
        measured = _bench(tables, kind) or _analysed(analyses, kind)
        for name, text in texts.items():
            if measured is None:
                yield missing(text, where, f"no rows of {', '.join(COMPARED)} there")
                continue
            values: dict[str, Measured] = {who: getattr(errors, name) for who, errors in measured.errors.items()}
            ours = values[SUBJECT]
            rival = min((who for who in values if who != SUBJECT), key=lambda who: values[who].value)
            here = ", ".join(f"{who} {number(value.value)}" for who, value in values.items())
            verdict = decide(values[rival] - ours)
            tea = measured.errors[SUBJECT]
            if name == "maximum" and verdict == NOISE and min(tea.worst, measured.errors[rival].worst) < FEW:
                here += f"; TEA and {rival} are not told apart"
            else:
                here += f"; TEA against {rival}: {ours - values[rival]}"
            if name == "maximum":
                here += f"; TEA's worst bin holds {tea.worst:,} of {tea.n:,} answers"
                finer = ", ".join(f"{who} {number(errors.maximum.value)}" for who, errors in measured.finer.items())
                here += f"; of 15 bins: {finer}" if finer else ""
            if kind == "clean":
                here += f"; paper, TEA against source: {number(-printed[name])}, a mean over batches"
            part = limited(measured.limit)
            yield Claim(text, here, verdict, where, measured.origin, part)


def _bench(tables: Sequence[Table], kind: str) -> _Measured | None:
    """Take the bins of bench rows."""
    best = None
    for table in about(tables, DATA, MODEL):
        rows: dict[str, list[Row]] = {}
        known: dict[str, Calibration] = {}
        finer: dict[str, Calibration] = {}
        for name in COMPARED:
            line = line_of(table, name)
            points = {} if line is None else places(line, (5,), clean=kind == "clean")
            whole = {"clean"} if kind == "clean" else set(benchmark())
            errors = calibration(*bars_of(points, BINS)) if {shift for shift, _ in points} == whole else None
            if errors is not None:
                known[name] = errors
                finer |= {name: fifteen} if (fifteen := calibration(*bars_of(points))) is not None else {}
                rows[name] = [row for seeds in whole_seeds(points).values() for row in seeds.values()]
        if len(known) == len(COMPARED):
            size = rows[SUBJECT][0]["n"]
            if best is None or size > best[0]:
                every = [row for cells in rows.values() for row in cells]
                best = (size, _Measured(known, finer, origin(every), table.spec.get("limit")))
    return None if best is None else best[1]


def _analysed(analyses: Sequence[Row], kind: str) -> _Measured | None:
    """Take the ten bars of `steep analyze calibration`."""
    parted: dict[tuple[object, ...], list[Row]] = {}
    for row in analyses:
        if (row["analysis"], row.get("data"), row.get("model")) == ("calibration", DATA, MODEL):
            corrupted = row.get("severity") == 5 and row.get("shifts") == len(benchmark())
            if row.get("shift") == "clean" if kind == "clean" else corrupted:
                parted.setdefault((row.get("run"), row.get("limit"), row.get("weights_sha256")), []).append(row)
    for (run, limit, _), rows in parted.items():
        errors = {row["label"]: row for row in rows if row["part"] == "errors" and row["label"] in COMPARED}
        if len(errors) < len(COMPARED):
            continue
        measured = {}
        for name, row in errors.items():
            bins = [bar for bar in rows if bar["part"] == "bin" and bar["label"] == name]
            bars = {
                "counts": [bar["n"] for bar in bins],
                **{what: [bar[what] or 0.0 for bar in bins] for what in ("confidence", "accuracy")},
            }
            calibrated_bars = calibration(pooled([bars]), row["seeds"])
            if calibrated_bars is not None and row["ece"] == row["ece"]:  # answers that are not finite have no bins
                measured[name] = calibrated_bars
        if len(measured) < len(errors):
            continue
        images = sorted({int(row["n"]) // max(1, row["shifts"] * row["seeds"]) for row in errors.values()})
        seeds = sorted({row["seeds"] for row in errors.values()})
        return _Measured(measured, {}, provenance(images, seeds, [run]), limit if isinstance(limit, int) else None)
    return None
