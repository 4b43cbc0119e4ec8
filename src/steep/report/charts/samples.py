"""Samples: charts of their distance to the test set, on the way there and in the buffer; and pictures for a page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, TypeAlias

from steep.bench.rows import grouped as by_key
from steep.report.charts.rows import Rows, averaged, finite, grouped
from steep.report.charts.style import Chart, Drawing, Parts, altair, by_label, not_drawn, plot, spoken
from steep.report.words import plain

_DISTANCES = {"mean_distance": "of means", "covariance_distance": "of covariances"}
_SIDE = 102  # of a panel; two stand side by side
_SET = ("shift", "severity", "label")
_BARS = (*_SET, "of", "n")
_PARTS = {
    "distance": (*_BARS, *_DISTANCES),
    "chain": (*_SET, "seed", "step", "energy", *_DISTANCES),
    "buffer": (*_SET, "seed", "batch", "travelled", "moved", "chains", *_DISTANCES),
}

BUDGET = 2_500_000  # bytes of pictures in a page; what is more stays in the files beside the rows
_PNG = b"\x89PNG\r\n\x1a\n"
_KINDS = {"real": "test images", "chain": "chains over SGLD steps", "buffer": "the replay buffer over batches"}
_ORDER = ("real", "samples", "chain", "buffer")

Picture: TypeAlias = tuple[str, str, str]  # PNG in base64, what it shows, its caption


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
        y=alt.Y("mean_distance:Q", title="distance of means"),
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


def grids(rows: Sequence[dict[str, Any]]) -> tuple[list[tuple[str, list[Picture]]], int]:
    """Give the pictures of some rows: for each shift the real images and, beside them, those of every model.

    And how many are left out: no PNG, or more than a page should carry.
    """
    shown, left, left_out = list[dict[str, Any]](), BUDGET, 0
    for row in (row for row in rows if row.get("part") == "picture"):
        text = row.get("png")
        if not isinstance(text, str) or not is_png(text) or len(text) > left:
            left_out += 1
            continue
        left -= len(text)
        shown.append(row)
    places = by_key(shown, place_of)
    several = len({place[-1] for place in places}) > 1
    distances = {(place_of(row), row.get("label")): row for row in rows if row.get("part") == "distance"}
    parts = []
    for place, pictures in places.items():
        pictures.sort(key=lambda row: _ORDER.index(row["kind"]) if row.get("kind") in _ORDER else len(_ORDER))
        where = where_of(*place[:-1], run=place[-1] if several else None)
        parts.append((where, [_picture(row, distances.get((place, row.get("label")), {})) for row in pictures]))
    return parts, left_out


def _picture(row: dict[str, Any], distance: dict[str, Any]) -> Picture:
    kind = _KINDS.get(str(row.get("kind")), plain(row.get("kind")))
    about = caption = kind if row.get("kind") == "real" else f"{plain(row.get('label'))}: {kind}"
    numbers = [number for name in _DISTANCES if isinstance(number := distance.get(name), float)]
    if row.get("kind") in ("real", "samples") and len(numbers) == 2:
        caption += f". Distance to the test set: mean {numbers[0]:.3f}, covariance {numbers[1]:.4f}"
    return row["png"], about, caption


def place_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Name the set a row is of, and its run."""
    return tuple(row.get(name) for name in ("data", "source", "shift", "severity", "seed", "run"))


def where_of(data: Any, source: Any, shift: Any, severity: Any, seed: Any, *, run: Any) -> str:
    """Say which set that is."""
    place = f"{source} → {shift}" if source else f"{data}, {shift}"
    place += (f" {severity}" if severity else "") + (f", seed {seed}" if seed else "")
    return plain(place + (f", run {run}" if run else ""))


def is_png(text: str) -> bool:
    """Tell whether base64 text holds a PNG; a store may come from a stranger."""
    try:
        return base64.b64decode(text, validate=True).startswith(_PNG)
    except (binascii.Error, ValueError):
        return False
