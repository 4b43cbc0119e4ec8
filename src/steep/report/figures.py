"""Figures of a bench: what is drawn (records), how (a chart of altair) and what it shows in words.

Records come first and need nothing but rows; a chart is made of records alone. Where altair is not installed, the
records are still there. Colours that depend on the theme are the page's to set. The charts of `steep analyze` are in
`report/charts/`; `analysed` brings them into this form.
"""

from __future__ import annotations

import contextlib
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from steep.bench.rows import Row, pooled
from steep.errors import InputError
from steep.report.charts import CHARTS, TABLES, theme
from steep.report.charts import figures as parted
from steep.report.charts.style import WIDTH, altair, legend, plot, shades
from steep.report.noise import places
from steep.report.tables import MEAN, SPEED, Table, by_severity
from steep.report.words import plain

Record: TypeAlias = dict[str, Any]

EXTRA = "pip install '.[report]'"
CELL = 132  # side of one small picture of a row of them
GREY = "#888888"  # of what is no method; to be seen on white and on black


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
        with altair().data_transformers.disable_max_rows(), _lacking(f"figure {self.name}"):
            spec: dict[str, Any] = self.draw().to_dict()
        return spec


@contextlib.contextmanager
def _lacking(what: str) -> Iterator[None]:
    """Say of what rows lack something."""
    try:
        yield
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{what}: its rows lack something ({error!r}). Make them again") from error


def of(table: Table) -> list[Figure]:
    """Make the figures of a table; what rows do not allow is left out.

    >>> of(Table("empty", (), (), ()))
    []
    """
    figures = []
    for name, (title, caption, collect, chart) in _FIGURES.items():
        if records := collect(table):
            kinds = sorted({plain(memory["of"]) for memory in _memory(table.rows) if memory.get("of")})
            caption = caption.format(memory="; ".join(kinds) or "as measured")
            draw = functools.partial(_draw, chart, records, caption)
            figures.append(Figure(name, title, caption, {"": records}, draw, broad=name == "reliability"))
    return figures


def _draw(chart: Callable[[list[Record]], Any], records: list[Record], caption: str) -> Any:
    return chart(records).properties(description=caption).configure(**theme())


def _fitted(chart: Any, height: int) -> Any:
    """Fit axes and legend into the width, not only what they are of."""
    return chart.properties(width=WIDTH, height=height, autosize={"type": "fit-x", "contains": "padding"})


def _severities(table: Table) -> list[Record]:
    views = [view for view in by_severity(table) if len(view.severities) == 1] if len(table.severities) > 1 else []
    return [
        {"method": line.name, "severity": view.severities[0], "accuracy": _round(ours.mean)}
        for view in views
        for line in view.lines
        if MEAN in line.values and (ours := line.values[MEAN].ours) is not None
    ]


def _severity_chart(records: list[Record]) -> Any:
    alt = altair()
    lines = plot(
        "line",
        records,
        {"point": True, "strokeWidth": 2},
        "method:N, severity:O, accuracy:Q .2f",
        x=alt.X("severity:O", title="severity").axis(labelAngle=0),
        y=alt.Y("accuracy:Q", title="mean accuracy (%)").scale(zero=True),
        color=_colour(records),
    )
    return _fitted(lines, 260)


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
        for (shift, severity), rows in places(line, table.severities).items() if line is not source else ():
            reduction = _mean(rows, "energy_before") - _mean(rows, "energy_after")
            gain = 100 * (_mean(rows, "accuracy") - against.get((shift, severity), math.nan))
            if not math.isnan(reduction + gain):
                numbers = {"reduction": _round(reduction), "gain": _round(gain)}
                points.append({"method": line.name, "shift": shift, "severity": severity, **numbers})
    return points


def _gain_chart(records: list[Record]) -> Any:
    alt = altair()
    points = plot(
        "circle",
        records,
        {"size": 55, "opacity": 0.8},
        "method:N, shift:N, severity:O, reduction:Q .2f fall in energy, gain:Q +.2f gain (points)",
        x=alt.X("reduction:Q", title="fall in energy"),
        y=alt.Y("gain:Q", title="gain in accuracy (points)"),
        color=_colour(records),
    )
    zero = functools.partial(plot, "rule", [{"zero": 0}], {"strokeDash": [4, 4], "opacity": 0.6, "color": GREY})
    return _fitted(zero(y="zero:Q") + zero(x="zero:Q") + points, 300)


def _energies(table: Table) -> list[Record]:
    records = []
    for line in table.lines:
        if sets := places(line, table.severities).values():
            names = {"before": "energy_before", "after": "energy_after"}
            means = {name: statistics.fmean(_mean(rows, key) for rows in sets) for name, key in names.items()}
            if not math.isnan(sum(means.values())):
                records.append({"method": line.name, **{name: _round(mean) for name, mean in means.items()}})
    return records


def _energy_chart(records: list[Record]) -> Any:
    alt, colours = altair(), _colour(records, named=False)
    y = alt.Y("method:N", sort=_sorted(records, lambda record: record["after"]), title=None)
    tip = "method:N, before:Q .3f, after:Q .3f"
    x = alt.X("before:Q", title="mean energy: ○ before, ● after").scale(zero=False)
    line = plot("rule", records, {"strokeWidth": 3, "opacity": 0.5}, x=x, x2="after:Q", y=y, color=colours)
    before = plot("point", records, {"size": 70, "filled": False, "color": GREY}, tip, x="before:Q", y=y)
    after = plot("circle", records, {"size": 90, "opacity": 1}, tip, x="after:Q", y=y, color=colours)
    return _fitted(line + before + after, 26 * max(3, len(records)))


def _bins(table: Table) -> list[Record]:
    records = []
    for line in table.lines:
        cells = [row.get("reliability") for rows in places(line, table.severities).values() for row in rows]
        if bars := pooled([bars for bars in cells if isinstance(bars, Mapping)]):
            ends = zip(bars.edges, bars.edges[1:], strict=False)
            for (low, high), n, sure, right in zip(ends, bars.counts, bars.confidence, bars.accuracy, strict=True):
                about = {"method": line.name, "low": low, "high": high, "images": n}
                records.append({**about, "confidence": _round(sure), "accuracy": _round(right)})
    return records


def _reliability_chart(records: list[Record]) -> Any:
    alt = altair()
    names = list(dict.fromkeys(record["method"] for record in records))
    whole = {name: max(1, sum(r["images"] for r in records if r["method"] == name)) for name in names}
    filled = [
        {**r, "share": r["images"] / whole[r["method"]], "ideal": (r["low"] + r["high"]) / 2}
        for r in records
        if r["images"]
    ]
    y = alt.Y("accuracy:Q", title="accuracy").scale(domain=[0, 1]).axis(values=[0, 0.5, 1])
    bars = plot(
        "bar",
        None,
        tip="method:N, confidence:Q .3f, accuracy:Q .3f, images:Q ,",
        color=_colour(records, named=False),
        x=alt.X("low:Q", title="confidence").scale(domain=[0, 1]).axis(values=[0, 0.5, 1]),
        x2="high:Q",
        y=y,
        y2=alt.datum(0),
        opacity=alt.Opacity("share:Q", legend=None).scale(domain=[0, 0.2], range=[0.35, 1], clamp=True),
    )
    gap = plot(
        "rule", None, {"color": "#d0463b", "strokeWidth": 2, "opacity": 0.8}, x="ideal:Q", y=y, y2="confidence:Q"
    )
    dashed = {"color": GREY, "strokeDash": [4, 3], "interpolate": "linear"}
    ideal = plot("line", None, dashed, x="ideal:Q", y="ideal:Q")
    panel = alt.layer(bars, gap, ideal, data={"values": filled}).properties(width=CELL, height=CELL)
    return panel.facet(facet=alt.Facet("method:N", sort=names, title=None), columns=2)


def _speeds(table: Table) -> list[Record]:
    records: list[Record] = []
    for line in table.lines:
        ours, speed = line.mean(MEAN), line.mean(SPEED)
        if ours is not None and speed is not None:
            records.append({"method": line.name, "accuracy": _round(ours), "images_per_s": _round(speed)})
    for one in records:
        one["front"] = not any(
            other["accuracy"] >= one["accuracy"] and other["images_per_s"] > one["images_per_s"] for other in records
        )
    return records


def _speed_chart(records: list[Record]) -> Any:
    alt = altair()
    x = alt.X("images_per_s:Q", title="images per second").scale(type="log", nice=False, padding=24)
    both = {
        "x": x.axis(tickCount=3),
        "y": alt.Y("accuracy:Q", title="mean accuracy (%)").scale(zero=True),
    }
    tip = "method:N, accuracy:Q .2f, images_per_s:Q ,.0f images/s"
    size = alt.Size("size:Q", scale=None)
    points = plot("circle", _ringed(records), {"opacity": 1}, tip, color=_colour(records), size=size, **both)
    front = [record for record in records if record["front"]]
    line = plot("line", front, {"strokeDash": [4, 4], "color": GREY}, **both)
    names = plot("text", _apart(front), {"dy": -12, "align": "center"}, text="method:N", **both)
    return _fitted(line + points + names, 300)


def _ringed(records: Sequence[Record]) -> list[Record]:
    """Give each point its size: one that lies below others, which are drawn later, shows as a ring around them."""
    above = [sum(_near(one, other, 0.1, 2) for other in records[i + 1 :]) for i, one in enumerate(records)]
    return [{**one, "size": 90 * (1 + 1.5 * count)} for one, count in zip(records, above, strict=True)]


def _apart(records: Sequence[Record]) -> list[Record]:
    """Leave out names that would lie on top of another; the legend and the table have them all."""
    apart: list[Record] = []
    for record in sorted(records, key=lambda record: -record["accuracy"]):
        apart += [] if any(_near(record, other, 0.5, 6) for other in apart) else [record]
    return apart


def _near(one: Record, other: Record, ratio: float, points: float) -> bool:
    """Say whether two are as fast, up to a logarithm of `ratio`, and as accurate, up to `points`."""
    as_fast = abs(math.log(other["images_per_s"] / one["images_per_s"])) < ratio
    return bool(as_fast and abs(other["accuracy"] - one["accuracy"]) < points)


def memories(table: Table) -> dict[str, float]:
    """Give the most memory any cell of each line took, in GiB; nothing where that does not tell lines apart.

    On a CPU the whole process is measured, and all its methods share one peak.
    """
    peaks = {line.name: [float(m["bytes"]) for m in _memory(line.rows) if "bytes" in m] for line in table.lines}
    gib = {name: max(values) / 2**30 for name, values in peaks.items() if values}
    return gib if len({f"{value:.2f}" for value in gib.values()}) > 1 else {}


def _memory(rows: Iterable[Row]) -> list[Mapping[str, Any]]:
    return [memory for row in rows if isinstance(memory := row.get("peak_memory"), Mapping)]


def _memory_chart(records: list[Record]) -> Any:
    alt = altair()
    both = {
        "y": alt.Y("method:N", sort=_sorted(records, lambda record: -record["gib"]), title=None),
        "x": alt.X("gib:Q", title="peak memory (GiB)"),
        "tip": "method:N, gib:Q .2f GiB",
    }
    names = plot("text", records, {"dx": 4, "align": "left"}, text=alt.Text("gib:Q", format=".2f"), **both)
    bars = plot("bar", records, color=_colour(records, named=False), **both)
    return _fitted(bars + names, 26 * max(3, len(records)))


_FIGURES: dict[str, tuple[str, str, Callable[[Table], list[Record]], Callable[[list[Record]], Any]]] = {
    "severity": (
        "Accuracy as the shift grows",
        "Mean accuracy over all shifts, in percent, against severity; one line a method.",
        _severities,
        _severity_chart,
    ),
    "energy-gain": (
        "Fall in energy and gain in accuracy",
        "Each point is one method on one shift: how far the mean energy of the test images fell, and how many points "
        "of accuracy the method gained over the source model. The paper argues that for TEA the two go together.",
        energy_points,
        _gain_chart,
    ),
    "energy": (
        "Energy before and after",
        "Mean energy of the test images over all shifts: under the source model, and as each method answered them. "
        "The axis does not begin at zero.",
        _energies,
        _energy_chart,
    ),
    "reliability": (
        "Confidence against accuracy",
        "Accuracy of the answers given with each confidence, all shifts and seeds pooled. Bars on the diagonal are "
        "honest; the gap below it is overconfidence. The darker a bar, the more images lie in it.",
        _bins,
        _reliability_chart,
    ),
    "speed": (
        "Accuracy and speed",
        "What accuracy costs: mean accuracy in percent against images answered in a second (logarithmic). On the "
        "dashed line are the methods that no other beats in both.",
        _speeds,
        _speed_chart,
    ),
    "memory": (
        "Memory",
        "Peak memory in GiB, the most any cell took ({memory}).",
        lambda table: [{"method": name, "gib": _round(gib)} for name, gib in memories(table).items()],
        _memory_chart,
    ),
}
"""Of each figure its title, how to read it, its records and its chart."""


def analysed(analyses: Sequence[Row]) -> list[Figure]:
    """Bring the charts of `steep analyze` into this form; an analysis that has no chart has no figure."""
    figures = []
    for name, rows in parted(analyses).items():
        analysis = rows[0]["analysis"]
        if analysis in CHARTS:
            draw = functools.partial(CHARTS[analysis], rows)
            caption = f"Drawn from {len(rows):,} rows of steep analyze {plain(analysis)}."
            with _lacking(f"analysis {analysis}"):
                records = TABLES[analysis](rows)
                figures.append(Figure(plain(name), plain(name), caption, records, draw, own_colours=True))
    return figures


def _colour(records: Sequence[Record], *, named: bool = True) -> Any:
    names = list(dict.fromkeys(record["method"] for record in records))
    colour = altair().Color("method:N", title=None, sort=names).scale(domain=names, range=shades(names))
    return colour.legend(legend(names) if named else None)


def _sorted(records: Sequence[Record], key: Callable[[Record], float]) -> list[str]:
    return [record["method"] for record in sorted(records, key=key)]


def _mean(rows: Sequence[Row], name: str) -> float:
    """Mean of a number over rows; NaN where one of them has none."""
    values = [row.get(name) for row in rows]
    return statistics.fmean(value if isinstance(value, (int, float)) else math.nan for value in values)


def _round(value: float) -> float:
    return float(f"{value:.6g}")  # what an eye can see; keeps the page small
