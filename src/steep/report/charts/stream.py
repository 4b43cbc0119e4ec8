"""One run over time: energies, entropy and loss, what the guard undid, and which classes were answered."""

from __future__ import annotations

import math
from typing import Any

from steep.report.charts.rows import Rows, finite, some
from steep.report.charts.style import AMBER, BLUE, GREEN, GREY, RED, altair, finish

MOST_POINTS = 200
"""More batches than this are drawn as means of neighbours."""

_ENERGIES = {
    "energy_before": "test images, before",
    "energy_after": "test images, after",
    "energy_samples": "samples",
}
_KIND_COLOURS = {
    "test images, before": GREY,
    "test images, after": RED,
    "samples": BLUE,
    "loss": AMBER,
    "entropy": GREEN,
}


def tables(rows: Rows) -> dict[str, Rows]:
    """Means over neighbouring batches, the share of each class in them, and the batches the guard undid."""
    every = some(rows, "stream", "batch")
    width = math.ceil(len(every) / MOST_POINTS)
    numbers, classes, events = [], [], []
    for start in range(0, len(every), width):
        group = every[start : start + width]
        about = {"batch": group[0]["batch"], "batch_end": group[-1]["batch"] + 1}
        for name in (*_ENERGIES, "loss", "entropy"):
            values = [row[name] for row in group if finite(row, name)]
            if values:
                numbers.append({**about, "of": _ENERGIES.get(name, name), "value": math.fsum(values) / len(values)})
        counts = [sum(column) for column in zip(*(row["classes"] for row in group), strict=True)]
        whole = sum(counts)
        classes += [
            {**about, "class": k, "count": count, "share_percent": 100 * count / whole}
            for k, count in enumerate(counts)
            if whole
        ]
    before = 0
    for row in every:
        if row["undone"] > before or row.get("skipped"):
            events.append({"batch": row["batch"], "undone": row["undone"], "why": row.get("skipped") or "step undone"})
        before = row["undone"]
    return {"numbers": numbers, "classes": classes, "events": events}


def chart(rows: Rows) -> Any:
    """Three panels over the batches."""
    alt = altair()
    every, records = some(rows, "stream", "batch"), tables(rows)
    last = max(row["batch"] for row in every)
    span = alt.Scale(domain=[1, last + 1], nice=False)
    x = alt.X("batch:Q", title=None, scale=span).axis(labels=False, grid=False)

    def lines(kinds: tuple[str, ...], title: str, height: int) -> Any:
        group = [row for row in records["numbers"] if row["of"] in kinds]
        there = [kind for kind in kinds if any(row["of"] == kind for row in group)]
        scale = alt.Scale(domain=there, range=[_KIND_COLOURS[kind] for kind in there])
        dash = alt.Scale(domain=there, range=[[1, 0], [6, 3], [2, 2]][: len(there)])
        drawn = (
            alt.Chart(alt.Data(values=group))
            .mark_line(strokeWidth=1.8)
            .encode(
                x=x,
                y=alt.Y("value:Q", title=title).scale(zero=False),
                color=alt.Color("of:N", title=None, scale=scale),
                strokeDash=alt.StrokeDash("of:N", title=None, scale=dash),
                tooltip=["of:N", "batch:Q", "batch_end:Q", alt.Tooltip("value:Q", format=".4g")],
            )
        )
        marks = (
            alt.Chart(alt.Data(values=records["events"]))
            .mark_rule(color="#b3261e", strokeDash=[3, 3])
            .encode(x=alt.X("batch:Q", scale=span, title=None), tooltip=["batch:Q", "why:N", "undone:Q"])
        )
        return alt.layer(drawn, *([marks] if records["events"] else [])).properties(width=560, height=height)

    tall = min(240, max(90, 12 * len(every[0]["classes"])))
    heat = (
        alt.Chart(alt.Data(values=records["classes"]))
        .mark_rect()
        .encode(
            x=alt.X("batch:Q", title="batch", scale=span).axis(tickMinStep=1, format="d"),
            x2="batch_end:Q",
            y=alt.Y("class:O", title="answered class").axis(labelOverlap="greedy"),
            color=alt.Color("share_percent:Q", title="share (%)", scale=alt.Scale(scheme="viridis", domainMin=0)),
            tooltip=["class:O", "batch:Q", "batch_end:Q", "count:Q", alt.Tooltip("share_percent:Q", format=".1f")],
        )
        .properties(width=560, height=tall)
    )
    parts = [
        lines(tuple(_ENERGIES.values()), "energy (nats)", 140),
        lines(("entropy", "loss"), "entropy, loss (nats)", 110),
    ]
    images = sum(row["n"] for row in every)
    undone = every[-1]["undone"]
    notes = [f"method: {every[0].get('label', '')}; {len(every):,} batches, {images:,} images; {undone} steps undone"]
    if records["events"]:
        notes.append(f"dashed red: {len(records['events'])} batches whose step was undone or skipped")
    return finish(
        alt.vconcat(*parts, heat, spacing=10).resolve_scale(color="independent", strokeDash="independent"),
        every,
        "One run, batch by batch",
        notes,
        "Over batches: energy of test images and samples, entropy, loss; a heat map of answered classes.",
    )
