"""One run over time: energies, entropy and loss, what the guard undid, and which classes were answered."""

from __future__ import annotations

import math
from typing import Any

from steep.report.charts.rows import Rows, finite, mean
from steep.report.charts.style import AMBER, BLUE, GREEN, GREY, REAL, RED, Chart, Drawing, Parts, altair, cut, plot

MOST_POINTS = 200
"""More batches than this are drawn as means of neighbours."""

_LINES = {
    "energy_before": ("test images, before", GREY),
    "energy_after": ("test images, after", RED),
    "energy_samples": ("samples", BLUE),
    "loss": ("loss", AMBER),
    "entropy": ("entropy", GREEN),
    "disagreement": ("unlike the source model", REAL),
    "gain": ("estimated gain", BLUE),
    "gain_low": ("at least", GREY),
    "gain_high": ("at most", GREY),
}
_DASHES = [[1, 0], [6, 3], [2, 2]]
_CLASSES = {"classes": "answered class", "source_classes": "source model's answer"}


def _tables(parts: Parts) -> dict[str, Rows]:
    """Means over neighbouring batches, the share of each class in them, and what the guard did."""
    every = parts["batch"]
    width = math.ceil(len(every) / MOST_POINTS)
    numbers, classes, events = [], [], []
    for start in range(0, len(every), width):
        group = every[start : start + width]
        about = {"batch": group[0]["batch"], "batch_end": group[-1]["batch"] + 1}
        for name, (kind, _) in _LINES.items():
            if known := [row for row in group if finite(row, name)]:
                numbers.append({**about, "of": kind, "value": mean(known, name)})
        for name in _CLASSES:
            counts = [sum(column) for column in zip(*(row[name] for row in group if row.get(name)), strict=True)]
            whole = sum(counts)
            classes += [
                {**about, "of": name, "class": k, "count": count, "share_percent": 100 * count / whole}
                for k, count in enumerate(counts)
                if whole
            ]
    for before, row in zip([0, *(row["undone"] for row in every)], every, strict=False):
        why = row.get("skipped") or ("step undone" if row["undone"] > before else row.get("note"))
        if why and not row.get("waiting"):
            events.append({"batch": row["batch"], "undone": row["undone"], "why": why})
    return {"numbers": numbers, "classes": classes, "events": events}


def _chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """Panels over the batches: energies, entropy, classes; where the source model is known, disagreement and gain."""
    alt, every, events = altair(), parts["batch"], tables["events"]
    span = alt.Scale(domain=[1, max(row["batch"] for row in every) + 1], nice=False)

    def lines(names: tuple[str, ...], title: str, height: int, *, zero: bool = True) -> Any:
        colours = dict(_LINES[name] for name in names)
        group = [row for row in tables["numbers"] if row["of"] in colours]
        domain = [kind for kind in colours if any(row["of"] == kind for row in group)]
        layers = [
            plot(
                "line",
                group,
                {"strokeWidth": 1.8},
                "of:N, batch:Q, batch_end:Q, value:Q .4g",
                x=alt.X("batch:Q", title=None, scale=span).axis(labels=False, grid=False),
                y=alt.Y("value:Q", title=title).scale(zero=zero),
                color=alt.Color("of:N", title=None).scale(domain=domain, range=[colours[kind] for kind in domain]),
                strokeDash=alt.StrokeDash("of:N", title=None).scale(domain=domain, range=_DASHES[: len(domain)]),
            )
        ]
        if events:
            red, x = {"color": "#b3261e", "strokeDash": [3, 3]}, alt.X("batch:Q", scale=span, title=None)
            layers.append(plot("rule", events, red, "batch:Q, why:N, undone:Q", x=x))
        return alt.layer(*layers).properties(width=330, height=height)

    def heat(name: str) -> Any:
        return plot(
            "rect",
            [row for row in tables["classes"] if row["of"] == name],
            tip="class:O, batch:Q, batch_end:Q, count:Q, share_percent:Q .1f",
            x=alt.X("batch:Q", title="batch", scale=span).axis(tickMinStep=1, format="d"),
            x2="batch_end:Q",
            y=alt.Y("class:O", title=_CLASSES[name]).axis(labelOverlap="greedy"),
            color=alt.Color("share_percent:Q", title="share (%)").scale(scheme="viridis", domainMin=0),
        ).properties(width=330, height=min(240, max(90, 12 * len(every[0]["classes"]))))

    known, gain = (any(finite(row, name) for row in every) for name in ("disagreement", "gain"))
    panels = [
        lines(("energy_before", "energy_after", "energy_samples"), "energy (nats)", 140, zero=False),
        lines(("entropy", "loss"), "entropy, loss (nats)", 110),
        *([lines(("disagreement",), "share of images", 70)] if known else []),
        *([lines(("gain", "gain_low", "gain_high"), "gain (points)", 90)] if gain else []),
        *(heat(name) for name in (_CLASSES if known else ["classes"])),
    ]
    images, undone = sum(row["n"] for row in every), every[-1]["undone"]
    dashed = f"dashed red: {len(events)} batches that the guard skipped, undid or brought the model back at"
    return (
        alt.vconcat(*panels, spacing=10).resolve_scale(color="independent", strokeDash="independent"),
        "One run, batch by batch",
        [
            f"method: {every[0].get('label', '')}; {len(every):,} batches, {images:,} images; {undone} steps undone",
            cut("energy"),
            "gain: over the source model, estimated without labels, 90 %" if gain else "",
            dashed if events else "",
        ],
        "Over batches: energy of test images and samples, entropy, loss; a heat map of answered classes.",
    )


CHART = Chart("stream", "batch", _tables, _chart)
