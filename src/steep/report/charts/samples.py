"""Samples in numbers: their distance to the test set, on the way there and in the buffer. The pictures are files."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, averaged, finite, grouped
from steep.report.charts.style import Chart, Drawing, Parts, altair, by_label, not_drawn, plot, spoken

_DISTANCES = {"mean_distance": "of means", "covariance_distance": "of covariances"}
_SIDE = 102  # of a panel; two stand side by side
_SET = ("shift", "severity", "label")
_BARS = (*_SET, "of", "n")
_PARTS = {
    "distance": (*_BARS, *_DISTANCES),
    "chain": (*_SET, "seed", "step", "energy", *_DISTANCES),
    "buffer": (*_SET, "seed", "batch", "travelled", "moved", "chains", *_DISTANCES),
}


def _tables(parts: Parts) -> dict[str, Rows]:
    """Distances: of each model's samples, a mean over seeds; of chains over SGLD steps; of the buffer over batches."""
    tables = {
        part: [{name: row.get(name) for name in names} for row in parts[part] if finite(row, *_DISTANCES)]
        for part, names in _PARTS.items()
    }
    # bars of several seeds would stand on top of each other, and look like their sum
    return {**tables, "distance": averaged(tables["distance"], _BARS, _DISTANCES, "seeds")}


def _chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """For each shift: distances as bars, a mean over seeds, and over SGLD steps and batches as lines."""
    labels = list(dict.fromkeys(row["label"] for row in parts["distance"]))
    lines = []
    for shift, severity in grouped(parts["distance"], "shift", "severity"):
        group = {part: grouped(table, "shift", "severity").get((shift, severity), []) for part, table in tables.items()}
        lines.append(_line(group, labels, spoken(shift) + (f", severity {severity}" if severity else "")))
    gone = sum(part != "picture" and not finite(row, *_DISTANCES) for part, rows in parts.items() for row in rows)
    smaller = "smaller: more like the test images; real: as many test images"
    return (
        altair().vconcat(*lines, spacing=24),
        "How far samples of each model are from the test images",
        [f"root mean square over pixels, values in [0, 1]; {smaller}", not_drawn(gone)],
        f"Bars and lines of the distance of mean and covariance for {', '.join(labels)}.",
    )


def _line(group: dict[str, Rows], labels: list[str], shift: str) -> Any:
    alt = altair()
    colour, shape = by_label(labels, "samples of")
    panels = [
        plot(
            "bar",
            group["distance"],
            tip=f"label:N, n:Q, seeds:Q, {name}:Q .4g",
            x=alt.X("label:N", title=None, sort=labels).axis(labelAngle=-40, labelOverlap=False),
            y=alt.Y(f"{name}:Q", title="distance").axis(tickCount=5),
            color=colour,
        ).properties(title=title.removeprefix("of ").capitalize(), width=_SIDE, height=_SIDE)
        for name, title in _DISTANCES.items()
    ]
    line = {"look": {"point": True}, "color": colour, "shape": shape, "detail": "seed:N"}
    step = alt.X("step:Q", title="SGLD steps (log)").scale(type="symlog", constant=1)
    steps = sorted({row["step"] for row in group["chain"]})
    chains = plot(
        "line",
        group["chain"],
        tip="label:N, step:Q, energy:Q, mean_distance:Q",
        x=step.axis(values=steps, labelOverlap="greedy", grid=False),
        y=alt.Y("mean_distance:Q", title="distance of means").scale(zero=False),
        **line,
    )
    panels.append(chains.properties(title="Along the chains", width=_SIDE, height=_SIDE))
    if group["buffer"]:
        drift = plot(
            "line",
            group["buffer"],
            tip="label:N, batch:Q, travelled:Q, moved:Q, mean_distance:Q",
            x=alt.X("batch:Q", title="batches adapted on").axis(tickMinStep=1, format="d"),
            y=alt.Y("travelled:Q", title="way since batch 1 (RMS)"),
            **line,
        )
        panels.append(drift.properties(title="The buffer's drift", width=_SIDE, height=_SIDE))
    return alt.concat(*panels, columns=2, spacing=18).properties(title=shift)


CHART = Chart("samples", "distance", _tables, _chart)
