"""TEA is the best calibrated of source, TENT, SHOT and TEA: by expected and by maximum calibration error.

The paper calls the maximum calibration error MCE. It has nothing to do with mCE, the mean corruption error. It is the
gap of one bin, often of the emptiest: how many answers lie in it is said, and its standard error decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from steep import recipes
from steep.bench.rows import Row
from steep.report.claims.verdict import Claim, decided, line_of, missing, origin, told
from steep.report.formats import number
from steep.report.noise import Calibration, Measured, calibrated, calibration, places, whole_seeds
from steep.report.paper import benchmark
from steep.report.tables import Table
from tools.results_page.claims.choosing import MODEL, about, limited

COMPARED = ("source", "tent", "shot", "tea")
_SETS = {"clean": "CIFAR-10, clean", "corrupted": "cifar10-c, 15 corruptions at severity 5 as one set"}


@dataclass(frozen=True)
class _Found:
    errors: Mapping[str, Calibration]
    origin: str
    limit: int | None


def best_calibrated(tables: Sequence[Table], analyses: Sequence[Row]) -> Iterator[Claim]:
    """Compare on clean images, as the paper does, and on corrupted ones."""
    paper = recipes.paper()["claims"]
    for kind, where in _SETS.items():
        texts = {
            "expected": "TEA has the lowest expected calibration error (ECE) of source, TENT, SHOT and TEA",
            "maximum": "TEA has the lowest maximum calibration error (the paper's MCE, not mCE) of these four",
        }
        said = {"expected": paper["ece_reduction"], "maximum": paper["mce_reduction"]}
        found = _bench(tables, kind) or _analysed(analyses, kind)
        for name, text in texts.items():
            if found is None:
                yield missing(text, f"{where}, {MODEL}", f"no rows of {', '.join(COMPARED)} there")
                continue
            values: dict[str, Measured] = {who: getattr(own, name) for who, own in found.errors.items()}
            own = values["tea"]
            rival = min((who for who in values if who != "tea"), key=lambda who: values[who].value)
            here = ", ".join(f"{who} {number(value.value)}" for who, value in values.items())
            here += f"; tea {own - values[rival]} against {rival}"
            if name == "maximum":
                here += f"; TEA's worst bin holds {found.errors['tea'].worst:,} of {found.errors['tea'].n:,} answers"
            if kind == "clean":
                here += f"; paper {number(-said[name])} against source"
            part = limited(found.limit)
            yield Claim(text, here, decided(values[rival] - own), f"{where}, {MODEL}", found.origin, part)


def _bench(tables: Sequence[Table], kind: str) -> _Found | None:
    """Take the bins of bench rows."""
    best = None
    for table in about(tables, "cifar10-c", MODEL):
        rows: dict[str, list[Row]] = {}
        known: dict[str, Calibration] = {}
        for name in COMPARED:
            line = line_of(table, name)
            points = {} if line is None else places(line, (5,), clean=kind == "clean")
            whole = {"clean"} if kind == "clean" else set(benchmark())
            errors = calibrated(points) if {shift for shift, _ in points} == whole else None
            if errors is not None:
                known[name] = errors
                rows[name] = [row for own in whole_seeds(points).values() for row in own.values()]
        if len(known) == len(COMPARED):
            size = rows["tea"][0]["n"]
            if best is None or size > best[0]:
                every = [row for own in rows.values() for row in own]
                best = (size, _Found(known, origin(every), table.spec.get("limit")))
    return None if best is None else best[1]


def _analysed(analyses: Sequence[Row], kind: str) -> _Found | None:
    """Take the rows of `steep analyze calibration`: its errors are of 15 bins, how sure they are is of its 10 bars."""
    parted: dict[tuple[object, ...], list[Row]] = {}
    for row in analyses:
        if (row["analysis"], row.get("data"), row.get("model")) == ("calibration", "cifar10-c", MODEL):
            corrupted = row.get("severity") == 5 and row.get("shifts") == len(benchmark())
            if row.get("shift") == "clean" if kind == "clean" else corrupted:
                parted.setdefault((row.get("run"), row.get("limit"), row.get("weights_sha256")), []).append(row)
    for (run, limit, _), rows in parted.items():
        errors = {row["label"]: row for row in rows if row["part"] == "errors" and row["label"] in COMPARED}
        if len(errors) < len(COMPARED):
            continue
        found = {}
        for name, row in errors.items():
            bins = [own for own in rows if own["part"] == "bin" and own["label"] == name]
            bars = {
                "counts": [own["n"] for own in bins],
                **{what: [own[what] or 0.0 for own in bins] for what in ("confidence", "accuracy")},
            }
            sure = calibration([bars], row["seeds"])
            if sure is None or row["ece"] != row["ece"]:
                break  # answers that are not finite have no bins
            found[name] = Calibration(
                Measured(100 * row["ece"], sure.expected.error),
                Measured(100 * row["mce"], sure.maximum.error),
                sure.worst,
                sure.n,
            )
        if len(found) < len(errors):
            continue
        images = sorted({int(row["n"]) // max(1, row["shifts"] * row["seeds"]) for row in errors.values()})
        seeds = sorted({row["seeds"] for row in errors.values()})
        return _Found(found, told(images, seeds, [run]), limit if isinstance(limit, int) else None)
    return None
