"""Figures of a bench: what is drawn (records), how (a chart of altair) and what it shows in words.

Records come first and need nothing but rows; a chart is made of records alone. Where altair is not installed, the
records are still there. The charts of `steep analyze` are in `report/charts/`; `analysed` brings them into this form.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from steep.bench.rows import Row, pooled
from steep.errors import InputError
from steep.report import drawing
from steep.report.charts import CHARTS, TABLES, theme
from steep.report.charts import figures as parted
from steep.report.charts.style import altair
from steep.report.noise import places
from steep.report.tables import MEAN, SPEED, Table, by_severity
from steep.report.words import plain

Record: TypeAlias = dict[str, Any]

EXTRA = "pip install '.[report]'"
_BINS = 10


@dataclass(frozen=True)
class Figure:
    """One picture: the records behind it, the function that draws it, and its words."""

    name: str  # of its files
    title: str
    caption: str  # how to read it; also what a screen reader says
    tables: Mapping[str, Sequence[Record]]  # what is drawn, by name; one table needs none
    draw: Callable[[], Any]
    broad: bool = False  # takes the whole width of a page
    own_colours: bool = False  # made for white paper, whatever the page's theme

    def spec(self) -> dict[str, Any]:
        """Draw it, as Vega-Lite."""
        alt = altair()
        with alt.data_transformers.disable_max_rows():
            try:
                spec: dict[str, Any] = self.draw().to_dict()
            except (KeyError, TypeError, IndexError) as error:
                raise InputError(f"figure {self.name}: its rows lack something ({error!r}). Make them again") from error
        return spec


def _figure(
    name: str, title: str, caption: str, records: Sequence[Record], chart: Callable[..., Any], *, broad: bool = False
) -> Figure:
    def draw() -> Any:
        return chart(records).properties(description=caption).configure(**theme())

    return Figure(name, title, caption, {"": records} if records else {}, draw, broad)


def of(table: Table) -> list[Figure]:
    """Make the figures of a table; what rows do not allow is left out.

    >>> of(Table("empty", (), (), ()))
    []
    """
    makers = (_severity, _energy_gain, _energy_fall, _reliability, _speed, _memory)
    return [figure for figure in (make(table) for make in makers) if figure.tables]


def _severity(table: Table) -> Figure:
    views = [view for view in by_severity(table) if len(view.severities) == 1] if len(table.severities) > 1 else []
    records = [
        {"method": line.name, "severity": view.severities[0], "accuracy": _round(ours.mean)}
        for view in views
        for line in view.lines
        if MEAN in line.values and (ours := line.values[MEAN].ours) is not None
    ]
    title = "Accuracy as the shift grows"
    caption = "Mean accuracy over all shifts, in percent, against severity; one line a method."
    return _figure("severity", title, caption, records, drawing.severity)


def energy_points(table: Table) -> list[Record]:
    """Energy reduction and accuracy gain over the source model, for each method, shift and severity; mean over seeds.

    Only where each shift is a cell of its own: a stream's row holds one energy for all of them.
    """
    source = table.source
    if source is None:
        return []
    against = {place: _mean(rows, "accuracy") for place, rows in places(source, table.severities).items()}
    points = []
    for line in table.lines:
        if line is source:
            continue
        for place, rows in places(line, table.severities).items():
            before, after, right = (_mean(rows, name) for name in ("energy_before", "energy_after", "accuracy"))
            base = against.get(place)
            if before is not None and after is not None and right is not None and base is not None:
                shift, severity = place
                reduction, gain = _round(before - after), _round(100 * (right - base))
                points.append(
                    {"method": line.name, "shift": shift, "severity": severity, "reduction": reduction, "gain": gain}
                )
    return points


def _energy_gain(table: Table) -> Figure:
    caption = (
        "Each point is one method on one shift: how far the mean energy of the test images fell, and how many points "
        "of accuracy the method gained over the source model. The paper argues that for TEA the two go together."
    )
    return _figure(
        "energy-gain", "Fall in energy and gain in accuracy", caption, energy_points(table), drawing.energy_gain
    )


def _energy_fall(table: Table) -> Figure:
    records = []
    for line in table.lines:
        sets = places(line, table.severities).values()
        pairs = [(_mean(rows, "energy_before"), _mean(rows, "energy_after")) for rows in sets]
        known = [(before, after) for before, after in pairs if before is not None and after is not None]
        if known and len(known) == len(pairs):
            before, after = (statistics.fmean(values) for values in zip(*known, strict=True))
            records.append({"method": line.name, "before": _round(before), "after": _round(after)})
    caption = (
        "Mean energy of the test images over all shifts: under the source model, and as each method answered them."
    )
    return _figure("energy", "Energy before and after", caption, records, drawing.energy_fall)


def _reliability(table: Table) -> Figure:
    records: list[Record] = []
    for line in table.lines:
        bars = [row["reliability"] for rows in places(line, table.severities).values() for row in rows
                if isinstance(row.get("reliability"), Mapping)]  # fmt: skip
        for index, (count, confidence, accuracy) in enumerate(pooled(bars)):
            records.append(
                {
                    "method": line.name,
                    "low": index / _BINS,
                    "high": (index + 1) / _BINS,
                    "images": count,
                    "confidence": _round(confidence),
                    "accuracy": _round(accuracy),
                }
            )
    caption = (
        "Accuracy of the answers given with each confidence, all shifts and seeds pooled. Bars on the diagonal are "
        "honest; the gap below it is overconfidence. The darker a bar, the more images lie in it."
    )
    return _figure("reliability", "Confidence against accuracy", caption, records, drawing.reliability, broad=True)


def _speed(table: Table) -> Figure:
    records: list[Record] = []
    for line in table.lines:
        ours, speed = (line.values[name].ours if name in line.values else None for name in (MEAN, SPEED))
        if ours is not None and speed is not None and ours.mean == ours.mean:
            records.append({"method": line.name, "accuracy": _round(ours.mean), "images_per_s": _round(speed.mean)})
    for one in records:
        one["front"] = not any(
            other["accuracy"] >= one["accuracy"] and other["images_per_s"] > one["images_per_s"] for other in records
        )
    caption = (
        "What accuracy costs: mean accuracy in percent against images answered in a second (logarithmic). On the "
        "dashed line are the methods that no other beats in both."
    )
    return _figure("speed", "Accuracy and speed", caption, records, drawing.speed)


def memories(table: Table) -> dict[str, float]:
    """Give the most memory any cell of each line took, in GiB; nothing where that does not tell lines apart.

    On a CPU the whole process is measured, and all its methods share one peak.
    """
    gib = {}
    for line in table.lines:
        peaks = [
            float(m["bytes"]) for row in line.rows if isinstance(m := row.get("peak_memory"), Mapping) and "bytes" in m
        ]
        if peaks:
            gib[line.name] = max(peaks) / 2**30
    return gib if len({f"{value:.2f}" for value in gib.values()}) > 1 else {}


def _memory(table: Table) -> Figure:
    records = [{"method": name, "gib": _round(gib)} for name, gib in memories(table).items()]
    peaks = [m for row in table.rows if isinstance(m := row.get("peak_memory"), Mapping)]
    of_what = "; ".join(sorted({plain(m["of"]) for m in peaks if m.get("of")}))
    caption = f"Peak memory in GiB, the most any cell took ({of_what or 'as measured'})."
    return _figure("memory", "Memory", caption, records, drawing.memory)


def analysed(analyses: Sequence[Row]) -> list[Figure]:
    """Bring the charts of `steep analyze` into this form; an analysis that has no chart has no figure."""
    figures = []
    for name, rows in parted(analyses).items():
        analysis = rows[0]["analysis"]
        if analysis in CHARTS:
            draw = functools.partial(CHARTS[analysis], rows)
            caption = f"Drawn from {len(rows):,} rows of steep analyze {plain(analysis)}."
            figures.append(Figure(plain(name), plain(name), caption, _behind(analysis, rows), draw, True, True))
    return figures


def _behind(analysis: str, rows: Sequence[Row]) -> dict[str, list[Record]]:
    try:
        return TABLES[analysis](list(rows))
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"analysis {analysis}: its rows lack something ({error!r}). Run it again") from error


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row.get(name) for row in rows]
    known = [float(value) for value in values if isinstance(value, (int, float)) and value == value]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _round(value: float) -> float:
    return float(f"{value:.6g}")  # what an eye can see; keeps the page small
