"""Streams on which adapting harms: what the default guard makes of every method, from stored rows."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt

from steep.core.method import Look
from steep.methods import SOURCE, look_of

RESULTS = Path(__file__).parents[2] / "results"
FILE = "safety-cpu.jsonl"
SHOWN = ("tent", "tea-fast", "infuse", "auto")  # columns and colours of their own; the others are grey dots
ONE_BY_ONE = "camera, batches of 1"


@cache
def gains() -> dict[str, dict[str, tuple[float, dict[str, Any]]]]:
    """Read the rows: stream → method → points above the source model on as many images, and the row."""
    rows = [json.loads(line) for line in (RESULTS / FILE).read_text("utf-8").splitlines()]
    source = {(row["stream"], row["n"]): row["accuracy"] for row in rows if row["method"] == SOURCE}
    by_stream: dict[str, dict[str, tuple[float, dict[str, Any]]]] = {}
    most: dict[str, int] = {}
    for row in rows:
        most[row["stream"]] = max(row["n"], most.get(row["stream"], 0))
    for row in rows:
        if row["method"] == SOURCE and row["n"] < most[row["stream"]]:
            continue
        gain = 100 * (row["accuracy"] - source[row["stream"], row["n"]])
        by_stream.setdefault(row["stream"], {})[row["method"]] = gain, row
    return by_stream


def table() -> str:
    """A line for each stream: the source model, a few methods, and the worst of all."""
    heads = ["stream", "methods", SOURCE, *SHOWN, "worst of all"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 2) + "---|"]
    for stream, methods in gains().items():
        others = {name: gain for name, (gain, _) in methods.items() if name != SOURCE}
        worst = min(others, key=others.__getitem__)
        accuracies = [f"{100 * methods[name][1]['accuracy']:.1f}" for name in (SOURCE, *SHOWN)]
        cells = [stream, str(len(others)), *accuracies, f"{worst}: " + f"{others[worst]:+.1f}".replace("-", "−")]
        lines.append("| " + " | ".join(cells) + " |")
    below = sum(gain < -1 for methods in gains().values() for gain, _ in methods.values())
    pairs = sum(len(methods) - 1 for methods in gains().values())
    note = (
        "Accuracy in percent; *worst of all*: points above or below the source model. Of "
        f"{pairs} pairs of a stream and a method {below} are more than one point below it."
    )
    return "\n".join([*lines, "", note])


def picture() -> alt.Chart:
    """A dot for each method on each stream: points above the source model."""
    points = [
        {"stream": stream, "method": name if name in SHOWN else "another method", "gain": gain}
        for stream, methods in gains().items()
        for name, (gain, _) in methods.items()
        if name != SOURCE
    ]
    names = [*SHOWN, "another method"]  # each in a row of its own: where methods are level, none hides another
    looks = [*map(look_of, SHOWN), Look("#b9c0c6", "circle")]
    zero = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(color="#555").encode(x="x:Q")
    legend = alt.Legend(orient="top", columns=3, title=None, labelFontSize=14)
    dots = alt.Chart(alt.Data(values=points)).mark_point(size=60, filled=True, opacity=0.9).encode(
        x=alt.X(
            "gain:Q", title="points above the source model", axis=alt.Axis(tickMinStep=1, tickCount=6),
            scale=alt.Scale(padding=8),
        ),
        y=alt.Y(
            "stream:N", sort=[*gains()], title=None, axis=alt.Axis(labelExpr="split(datum.label, ', ')"),
            scale=alt.Scale(paddingInner=0.3),
        ),
        yOffset=alt.YOffset("method:N", scale=alt.Scale(domain=names)),
        color=alt.Color(
            "method:N", scale=alt.Scale(domain=names, range=[look.colour for look in looks]), legend=legend
        ),
        shape=alt.Shape(
            "method:N", scale=alt.Scale(domain=names, range=[look.marker for look in looks]), legend=legend
        ),
    )  # fmt: skip
    return (zero + dots).properties(width=270, height=600)
