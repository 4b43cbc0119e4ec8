"""The charts of a bench, in altair: records in, chart out. Colours that depend on the theme are the page's to set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from steep.report.charts.style import shades

WIDTH = 520
CELL = 132  # side of one small picture of a row of them


def _base(records: Sequence[dict[str, Any]]) -> Any:
    import altair as alt

    return alt.Chart({"values": list(records)})


def _colour(records: Sequence[dict[str, Any]], **options: Any) -> Any:
    import altair as alt

    names = list(dict.fromkeys(record["method"] for record in records))
    return alt.Color("method:N", title=None, scale=alt.Scale(domain=names, range=shades(names)), sort=names, **options)


def severity(records: Sequence[dict[str, Any]]) -> Any:
    """Lines of accuracy against severity."""
    import altair as alt

    return (
        _base(records)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("severity:O", title="severity", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("accuracy:Q", title="mean accuracy (%)", scale=alt.Scale(zero=True)),
            color=_colour(records),
            tooltip=["method:N", "severity:O", alt.Tooltip("accuracy:Q", format=".2f")],
        )
        .properties(width=WIDTH, height=260)
    )


def energy_gain(records: Sequence[dict[str, Any]]) -> Any:
    """Points of gain against energy reduction."""
    import altair as alt

    points = (
        _base(records)
        .mark_circle(size=55, opacity=0.8)
        .encode(
            x=alt.X("reduction:Q", title="fall in energy"),
            y=alt.Y("gain:Q", title="gain in accuracy (points)"),
            color=_colour(records),
            tooltip=[
                "method:N",
                "shift:N",
                "severity:O",
                alt.Tooltip("reduction:Q", title="fall in energy", format=".2f"),
                alt.Tooltip("gain:Q", title="gain (points)", format="+.2f"),
            ],
        )
    )
    zero = alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4], opacity=0.6, color="#888888")
    return (zero.encode(y="zero:Q") + zero.encode(x="zero:Q") + points).properties(width=WIDTH, height=300)


def energy_fall(records: Sequence[dict[str, Any]]) -> Any:
    """A bar from the energy before to the energy after, for each method."""
    import altair as alt

    order = [record["method"] for record in sorted(records, key=lambda record: record["after"])]
    y = alt.Y("method:N", sort=order, title=None)
    base = _base(records)
    tips = ["method:N", alt.Tooltip("before:Q", format=".3f"), alt.Tooltip("after:Q", format=".3f")]
    colours = _colour(records, legend=None)
    line = base.mark_rule(strokeWidth=3, opacity=0.5).encode(
        x=alt.X("before:Q", title="mean energy: ○ before, ● after", scale=alt.Scale(zero=False)),
        x2="after:Q",
        y=y,
        color=colours,
    )
    before = base.mark_point(size=70, filled=False, color="#888888").encode(x="before:Q", y=y, tooltip=tips)
    after = base.mark_circle(size=90, opacity=1).encode(x="after:Q", y=y, color=colours, tooltip=tips)
    return (line + before + after).properties(width=WIDTH, height=26 * max(3, len(records)))


def reliability(records: Sequence[dict[str, Any]]) -> Any:
    """A small reliability diagram for each method."""
    import altair as alt

    axis = alt.Axis(values=[0, 0.5, 1])
    names = list(dict.fromkeys(record["method"] for record in records))
    whole = {name: max(1, sum(r["images"] for r in records if r["method"] == name)) for name in names}
    filled = [
        {**r, "share": r["images"] / whole[r["method"]], "ideal": (r["low"] + r["high"]) / 2}
        for r in records
        if r["images"]
    ]
    x = alt.X("low:Q", title="confidence", scale=alt.Scale(domain=[0, 1]), axis=axis)
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=axis)
    base = alt.Chart()
    bars = base.mark_bar().encode(
        color=_colour(records, legend=None),
        x=x,
        x2="high:Q",
        y=y,
        y2=alt.datum(0),
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 0.2], range=[0.35, 1], clamp=True), legend=None),
        tooltip=[
            "method:N",
            alt.Tooltip("confidence:Q", format=".3f"),
            alt.Tooltip("accuracy:Q", format=".3f"),
            alt.Tooltip("images:Q", format=","),
        ],
    )
    gap = base.mark_rule(color="#d0463b", strokeWidth=2, opacity=0.8).encode(x="ideal:Q", y=y, y2="confidence:Q")
    ideal = base.mark_line(color="#888888", strokeDash=[4, 3], interpolate="linear").encode(x="ideal:Q", y="ideal:Q")
    return (
        alt.layer(bars, gap, ideal, data={"values": filled})
        .properties(width=CELL, height=CELL)
        .facet(facet=alt.Facet("method:N", sort=names, title=None), columns=5)
    )


def speed(records: Sequence[dict[str, Any]]) -> Any:
    """Accuracy against images a second, each point named."""
    import altair as alt

    base = _base(records).encode(
        x=alt.X(
            "images_per_s:Q",
            title="images per second",
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(tickCount=3),
        ),
        y=alt.Y("accuracy:Q", title="mean accuracy (%)", scale=alt.Scale(zero=True)),
        tooltip=[
            "method:N",
            alt.Tooltip("accuracy:Q", format=".2f"),
            alt.Tooltip("images_per_s:Q", title="images/s", format=",.0f"),
        ],
    )
    points = base.mark_circle(size=90, opacity=1).encode(color=_colour(records))
    front = [record for record in records if record["front"]]
    line = _base(front).mark_line(strokeDash=[4, 4], color="#888888").encode(base.encoding.x, base.encoding.y)
    texts = _base(_apart(front)).mark_text(dy=-12, align="center")
    names = texts.encode(base.encoding.x, base.encoding.y, text="method:N")
    return (line + points + names).properties(width=WIDTH, height=300)


def _apart(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out names that would lie on top of another; the legend and the table have them all."""
    apart: list[dict[str, Any]] = []
    for record in sorted(records, key=lambda record: -record["accuracy"]):
        beside = [o for o in apart if abs(math.log(o["images_per_s"] / record["images_per_s"])) < 0.5]
        apart += [] if any(abs(o["accuracy"] - record["accuracy"]) < 6 for o in beside) else [record]
    return apart


def memory(records: Sequence[dict[str, Any]]) -> Any:
    """Bars of peak memory."""
    import altair as alt

    base = _base(records).encode(
        y=alt.Y("method:N", sort=[r["method"] for r in sorted(records, key=lambda r: -r["gib"])], title=None),
        x=alt.X("gib:Q", title="peak memory (GiB)"),
        tooltip=["method:N", alt.Tooltip("gib:Q", title="GiB", format=".2f")],
    )
    names = base.mark_text(dx=4, align="left").encode(text=alt.Text("gib:Q", format=".2f"))
    bars = base.mark_bar().encode(color=_colour(records, legend=None))
    return (bars + names).properties(width=WIDTH, height=26 * max(3, len(records)))
