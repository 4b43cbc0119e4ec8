"""Tables from rows: method × shift, mean ± deviation over seeds, average accuracy and mCE, the paper's figure beside.

One table for each thing that was measured (data, model, weights, protocol, ...) and for each view of severities: the
most severe alone, and all of them. What is missing stays missing: it is never a zero, and no line has an average over
shifts of which it lacks one. Of a bench that is not whole the table says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steep.bench.rows import Row, begun, grouped, pooled
from steep.data.streams import APART
from steep.errors import InputError
from steep.methods import SOURCE, is_baseline
from steep.metrics import SeedSummary, over_seeds
from steep.report.noise import Point
from steep.report.paper import CLEAN, as_in_paper, figure, has_every_shift, in_order
from steep.report.words import counted, declared, heading, plain, short

MEAN, MCE, ECE, SPEED = "mean", "mCE", "ECE", "images/s"
SMALLER_IS_BETTER = (MCE, ECE)

ENOUGH = 1_000
"""Images of each set from which on the paper's figure, which is of all, stands beside ours: known to half a point."""

GROUP = (
    *("data", "source", "model", "weights", "weights_sha256", "protocol", "delta", "rounds", "pace", "batch_size"),
    *("size", "crop", "interpolation", "channels", "limit", "precision"),
)
"""What the rows of one table have in common."""

_VARIANT = ("method", "setting", "predict", "steps", "episodic", "guard", "views")


@dataclass(frozen=True)
class Value:
    """One entry, in percent (images/s apart): ours over seeds, and the paper's; None where there is none."""

    ours: SeedSummary | None
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper


@dataclass(frozen=True)
class Line:
    """One method in one setting."""

    name: str
    method: str
    setting: str
    predict: str
    seeds: tuple[int, ...]
    values: Mapping[str, Value]
    spec: Mapping[str, Any] = field(default_factory=dict)  # of its first cell
    rows: tuple[Row, ...] = field(default=(), repr=False, compare=False)  # what it is made of

    def mean(self, column: str) -> float | None:
        """Give its number in a column; None where there is none, or where it is NaN."""
        ours = self.values[column].ours if column in self.values else None
        return None if ours is None or math.isnan(ours.mean) else ours.mean


@dataclass(frozen=True)
class Table:
    """What was measured, the columns, the lines, and what a reader has to know about them."""

    title: str
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)  # what all rows have in common
    severities: tuple[int, ...] = ()
    shifts: tuple[str, ...] = ()  # the columns that are one shift each, clean apart

    @property
    def rows(self) -> list[Row]:
        """Every row the table is made of."""
        return [row for line in self.lines for row in line.rows]

    @property
    def source(self) -> Line | None:
        """The line of the source model, which the others are compared with."""
        return next((line for line in self.lines if is_baseline(line.method)), None)

    @property
    def main_column(self) -> str:
        """The column it is ranked by: the mean, or clean accuracy where nothing else was run."""
        return MEAN if MEAN in self.columns else CLEAN

    def ranked(self) -> list[Line]:
        """Sort lines, best first; what is missing or NaN comes last, in the order it was."""
        means = {line.name: line.mean(self.main_column) for line in self.lines}
        return sorted(self.lines, key=lambda line: math.inf if (mean := means[line.name]) is None else -mean)

    def best(self, column: str) -> frozenset[str]:
        """Name the lines that are best in a column."""
        means = {line.name: round(mean, 2) for line in self.lines if (mean := line.mean(column)) is not None}
        if not means or column == SPEED:
            return frozenset()
        top = min(means.values()) if column in SMALLER_IS_BETTER else max(means.values())
        return frozenset(name for name, value in means.items() if value == top)

    def has(self, column: str) -> bool:
        """Tell whether any line has a number in a column."""
        return any(column in line.values and line.values[column].ours is not None for line in self.lines)

    def has_paper(self, column: str) -> bool:
        """Tell whether the paper has a figure for any line in a column."""
        return any(column in line.values and line.values[column].paper is not None for line in self.lines)


def build(rows: Iterable[Row]) -> list[Table]:
    """Make every table that rows give.

    >>> spec = {"data": "digits-c", "shift": "fog", "severity": 5, "method": "tent", "seed": 0, "protocol": "reset"}
    >>> row = {"key": "k", "spec": spec, "accuracy": 0.5, "n": 10, "finished": "", "env": {}}
    >>> table, = build([row])
    >>> table.columns[:3], table.lines[0].values["fog"].ours.mean
    (('fog', 'mean', 'mCE'), 50.0)
    """
    latest: dict[str, Row] = {}
    again: dict[str, list[bool]] = {}  # whether each further run of a cell changed its accuracy
    for row in rows:
        _refuse_broken(row)
        old = latest.get(row["key"])
        if old is not None:
            again.setdefault(row["key"], []).append(not _same(old["accuracy"], row["accuracy"]))
        if old is None or row.get("finished", "") >= old.get("finished", ""):
            latest[row["key"]] = row
    if not latest:
        raise InputError("report: expected at least one row, got an empty store. Run: steep bench RECIPE --store STORE")
    groups = grouped(latest.values(), lambda row: tuple(_hashable(row["spec"].get(name)) for name in GROUP))
    return [table for group in groups.values() for table in _Group(group, _twice(group, again)).tables()]


def _twice(rows: Sequence[Row], again: Mapping[str, Sequence[bool]]) -> list[str]:
    """Say how many of some cells were run more than once, and of how many that changed the accuracy."""
    repeated = [again[row["key"]] for row in rows if row["key"] in again]
    changed = sum(map(any, repeated))
    other = f" ({changed} of them with another accuracy)" if changed else ""
    return [f"{len(repeated)} cells were run more than once{other}; the latest counts"] if repeated else []


def by_severity(table: Table) -> list[Table]:
    """Make a table again for each severity alone and, where there are several, over all of them."""
    group = _Group(table.rows, ())
    views = [(level,) for level in group.severities]
    return [group.table(view) for view in (*views, *([group.severities] if len(views) != 1 else []))]


class _Group:
    """Rows that belong into the same tables."""

    def __init__(self, rows: Sequence[Row], notes: Sequence[str]) -> None:
        self.rows, self.notes = rows, notes
        self.spec = {name: rows[0]["spec"].get(name) for name in GROUP}
        variants = grouped(rows, _variant)
        self.variants = dict(zip(_names(list(variants)), variants.values(), strict=True))
        self.points = {name: _points(cells) for name, cells in self.variants.items()}
        every = {point for seeds in self.points.values() for points in seeds.values() for point in points}
        self.clean = any(shift == CLEAN for shift, _ in every)
        known = declared(self.spec["data"])
        self.shifts = tuple(in_order((s for s, _ in every if s != CLEAN), known.domains if known else ()))
        self.severities = tuple(sorted({severity for shift, severity in every if shift != CLEAN}))
        self.few = self.spec["limit"] is not None and self.spec["limit"] < ENOUGH
        self.where = {"data": self.spec["data"], "model": self.spec["model"], "source": self.spec["source"] or ""}

    def tables(self) -> list[Table]:
        """Make one table for each view of severities."""
        views = [self.severities]
        if len(self.severities) > 1 and self.spec["protocol"] in APART:
            views.insert(0, self.severities[-1:])
        return [self.table(view) for view in views]

    def table(self, view: tuple[int, ...]) -> Table:
        """Make the table of some severities."""
        averages = (MEAN, MCE) if self.shifts else ()
        columns = (*((CLEAN,) if self.clean else ()), *self.shifts, *averages, ECE, SPEED)
        source = next((n for n, rows in self.variants.items() if is_baseline(rows[0]["spec"].get("method"))), None)
        against = self._errors(source, view) if source is not None else {}
        baseline = {shift: statistics.fmean(errors.values()) for shift, errors in against.items() if errors}
        lines = tuple(self._line(name, view, columns, baseline) for name in self.variants)
        title = heading(self.spec, view)
        return Table(title, self._remarks(view), columns, lines, self.spec, view, self.shifts)

    def _line(self, name: str, view: tuple[int, ...], columns: Sequence[str], baseline: Mapping[str, float]) -> Line:
        rows = self.variants[name]
        spec = rows[0]["spec"]
        errors = self._errors(name, view)
        seeds = tuple(sorted({row["spec"].get("seed", 0) for row in rows}))
        whole = [seed for seed in seeds if self.shifts and all(seed in errors[shift] for shift in self.shifts)]
        numbers = {shift: _summary(100 * (1 - e) for e in by_seed.values()) for shift, by_seed in errors.items()}
        per_seed = [{shift: errors[shift][seed] for shift in self.shifts} for seed in whole]
        numbers[MEAN] = _summary(100 * (1 - statistics.fmean(by_shift.values())) for by_shift in per_seed)
        compared = all(baseline.get(shift) for shift in self.shifts)
        numbers[MCE] = _summary(
            100 * statistics.fmean(error / baseline[shift] for shift, error in by_shift.items())
            for by_shift in (per_seed if compared else ())
        )
        numbers[ECE] = self._ece(rows, view, whole if self.shifts else seeds)
        speeds = [row["images_per_s"] for row in rows if "images_per_s" in row]
        numbers[SPEED] = SeedSummary(mean=statistics.fmean(speeds), sd=None, n=len(speeds)) if speeds else None
        values = {column: Value(numbers[column], self._paper(spec, column, view)) for column in columns}
        setting, predict = plain(spec.get("setting", "paper")), plain(spec.get("predict", ""))
        return Line(name, spec.get("method", ""), setting, predict, seeds, values, spec, tuple(rows))

    def _errors(self, name: str, view: tuple[int, ...]) -> dict[str, dict[int, float]]:
        """Mean error over the severities of a view, by shift and seed; only where every severity is there."""
        means: dict[str, dict[int, float]] = {}
        for shift in (*self.shifts, CLEAN):
            means[shift] = {}
            for seed, points in self.points[name].items():
                places = [(shift, severity) for severity in ((0,) if shift == CLEAN else view)]
                if all(place in points for place in places):
                    means[shift][seed] = statistics.fmean(points[place] for place in places)
        return means

    def _ece(self, rows: Sequence[Row], view: tuple[int, ...], seeds: Sequence[int]) -> SeedSummary | None:
        """Calibration error of all sets of a view pooled into one, by seed; NaN where answers were not finite."""
        errors = []
        for seed in seeds:
            cells = [row for row in rows if row["spec"].get("seed", 0) == seed and "calibration" in row]
            if self.shifts:
                cells = [r for r in cells if r["spec"]["shift"] != CLEAN
                         and (_long(r) or r["spec"]["severity"] in view)]  # fmt: skip
            bars = [row["calibration"] for row in cells]
            whole = None if None in bars else pooled(bars)
            if None in bars or whole is not None:
                errors.append(math.nan if whole is None else 100 * whole.ece)
        return _summary(errors)

    def _paper(self, spec: Mapping[str, Any], column: str, view: tuple[int, ...]) -> float | None:
        """Find the paper's figure where ours is of the same thing: no other setting, sample or set of shifts."""
        same = spec.get("setting", "paper") == "paper" and spec.get("label") in (None, "", spec["method"])
        if not same or self.few or not as_in_paper(spec) or column in (ECE, SPEED):
            return None
        if column in (MEAN, MCE) and not has_every_shift(self.spec["data"], self.shifts):
            return None
        return figure(spec["method"], column.lower(), **self.where, severities=view)

    def _mixed_images(self) -> bool:
        """Look for a shift of which two rows hold different images."""
        seen: dict[Any, Any] = {}
        for row in self.rows:
            if digests := [part.get("sha256") for part in row.get("data") or ()]:
                where = tuple(_hashable(row["spec"].get(name)) for name in ("shift", "severity", "sequence"))
                if seen.setdefault(where, digests) != digests:
                    return True
        return False

    def _unfinished(self, name: str, view: tuple[int, ...]) -> bool:
        errors = self._errors(name, view)
        return any(seed not in errors[shift] for seed in self.points[name] for shift in self.shifts)

    def _remarks(self, view: tuple[int, ...]) -> tuple[str, ...]:
        """Say how it was run and what a reader has to know; what does not apply is left out."""
        spec, rows = self.spec, self.rows
        batch = {None: "", 0: "the whole set in one batch"}.get(spec["batch_size"], f"batch {spec['batch_size']}")
        how = [
            f"protocol {spec['protocol']}",
            batch,
            *(f"{name} {spec[name]}" for name in ("delta", "rounds", "pace") if spec.get(name) is not None),
            f"{spec['size']} pixels" if spec["size"] else "",
            f"first {spec['limit']:,} images of each set" if spec["limit"] else "",
            spec["precision"],
        ]
        env = [row.get("env") or {} for row in rows]
        settings = sorted({row["spec"].get("setting", "paper") for row in rows})
        devices = sorted({str(e["device"]) for e in env if e.get("device")})
        commits = sorted({short(e["commit"]) for e in env if e.get("commit")})
        versions = sorted({str(e["versions"]["steep"]) for e in env if e.get("versions")})
        images = counted(sorted({int(row["n"]) for row in rows}))
        weights = f"{spec['weights']} ({spec['weights_sha256'][:12]})" if spec["weights_sha256"] else spec["weights"]
        bad = sum(bool(row.get("nonfinite")) for row in rows)
        undone = sum(int(row.get("undone") or 0) for row in rows)
        shares = begun(rows)
        partial = ", ".join(name for name in self.variants if self._unfinished(name, view))
        others = not self.few and not all(as_in_paper(row["spec"]) for row in rows)
        printed = others and any(figure(SOURCE, c, **self.where, severities=view) is not None for c in (MEAN, CLEAN))
        cut = spec["limit"] and any(self._paper(row["spec"], MEAN, view) is not None for row in rows)
        known = {  # whether each is so
            "accuracy in percent; " + ", ".join(str(part) for part in how if part): True,
            f"settings: {', '.join(settings)}; weights {weights}": True,
            f"{len(rows)} cells, n = {images} images each; on {', '.join(devices) or 'an unknown device'}"
            + (f"; commit {', '.join(commits)}" if commits else "")
            + (f"; steep {', '.join(versions)}" if versions else ""): True,
            "rows of several versions of steep stand side by side: a difference may be the code's": len(versions) > 1
            or len(commits) > 1,
            "mCE needs the source model's rows, which are not here": not any(
                is_baseline(row["spec"].get("method")) for row in rows
            ),
            f"{bad} cells answered with NaN or infinity, which counts as wrong": bad,
            f"the guard undid {undone:,} steps": undone,
            f"a part of a bench: {shares} have run so far; averages are over the shifts that are here": shares,
            "not all methods saw the same images of a shift: their files changed between runs": self._mixed_images(),
            f"not finished: {partial}; averages are over the seeds that are whole": partial,
            "no figure of the paper where batch, steps, size or rates are not the paper's": printed,
            "the paper's figures are of whole sets: what learns along a stream has had more of it there": cut,
        }
        from_rows = sorted({note for row in rows for note in row.get("notes", ())})
        return tuple(map(plain, (*(text for text, so in known.items() if so), *from_rows, *self.notes)))


def _summary(values: Iterable[float]) -> SeedSummary | None:
    """Summarise a number over seeds; None where there is none, NaN where one of them is NaN."""
    every = list(values)
    if not all(map(math.isfinite, every)):
        return SeedSummary(mean=math.nan, sd=None, n=len(every))
    return over_seeds(every) if every else None


def _refuse_broken(row: Row) -> None:
    """Say which row lacks what a table is made of, before something fails over it."""
    spec = row.get("spec")
    lacks = [name for name in ("data", "shift", "severity", "method") if not isinstance(spec, dict) or name not in spec]
    lacks += [name for name in ("accuracy", "n") if not isinstance(row.get(name), (int, float))]
    if lacks:
        raise InputError(
            f"report: expected rows of steep bench, got one (key {str(row.get('key'))[:12]!r}) without "
            f"{', '.join(lacks)}. Move it out of the file; its cell will run again"
        )


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)  # NaN is the same as NaN


def _points(rows: Sequence[Row]) -> dict[int, dict[Point, float]]:
    """Errors of one method by seed, shift and severity; a stream's segments of one kind are averaged by images."""
    by_seed: dict[int, dict[Point, float]] = {}
    for row in rows:
        spec = row["spec"]
        errors = by_seed.setdefault(spec.get("seed", 0), {})
        if not _long(row):
            errors[plain(spec["shift"]), spec["severity"]] = 1 - row["accuracy"]
            continue
        for point, parts in grouped(row["segments"], lambda part: (plain(part["name"]), part["severity"])).items():
            errors[point] = sum(part["n"] * part["error"] for part in parts) / sum(part["n"] for part in parts)
    return by_seed


def _long(row: Row) -> bool:
    return bool(row.get("segments"))


def _variant(row: Row) -> tuple[Any, ...]:
    spec = row["spec"]
    hyper = tuple(sorted((k, _hashable(v)) for k, v in (spec.get("hyper") or {}).items()))
    return (spec.get("label") or spec["method"], *(spec.get(name) for name in _VARIANT), hyper)


def _names(variants: Sequence[tuple[Any, ...]]) -> list[str]:
    """Name the lines; where two would be called the same, by what they differ in."""
    names = [plain(v[0]) + (" (tuned)" if v[2] == "tuned" else "") for v in variants]
    for name in {n for n in names if names.count(n) > 1}:
        same = [index for index, n in enumerate(names) if n == name]
        tables = {i: {**dict(zip(_VARIANT, variants[i][1:-1], strict=True)), **dict(variants[i][-1])} for i in same}
        keys = {key for table in tables.values() for key in table}
        differ = sorted(k for k in keys if len({repr(table.get(k)) for table in tables.values()}) > 1)
        for i in same:
            names[i] = f"{name} " + " ".join(plain(f"{key}={tables[i].get(key)}") for key in differ)
    return names


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((str(name), repr(item)) for name, item in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value
