"""Samples in numbers: their distance to the test set, on the way there and in the buffer. The pictures are files."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, mean, some
from steep.report.charts.style import altair, coloured, finish, shaped, spoken

_DISTANCES = (("mean_distance", "of means"), ("covariance_distance", "of covariances"))


def tables(rows: Rows) -> dict[str, Rows]:
    """Distances: of each model's samples, a mean over seeds; of chains over SGLD steps; of the buffer over batches."""
    some(rows, "samples")
    numbers = tuple(name for name, _ in _DISTANCES)
    about = ("shift", "severity", "label", "seed")
    parts = {
        "distance": (*about, "of", "n", *numbers),
        "chain": (*about, "step", "energy", *numbers),
        "buffer": (*about, "batch", "travelled", "moved", "chains", *numbers),
    }
    records = {
        part: [{n: row.get(n) for n in names} for row in rows if row["part"] == part and finite(row, *numbers)]
        for part, names in parts.items()
    }
    return {**records, "distance": _over_seeds(records["distance"])}


def _over_seeds(distances: Rows) -> Rows:
    """One row for each label: bars of several seeds would stand on top of each other, and look like their sum."""
    names = ("shift", "severity", "label", "of", "n")
    parted: dict[tuple[Any, ...], Rows] = {}
    for row in distances:
        parted.setdefault(tuple(row[name] for name in names), []).append(row)
    return [
        {
            **dict(zip(names, key, strict=True)),
            "seeds": len(group),
            **{name: mean(group, name) for name, _ in _DISTANCES},
        }
        for key, group in parted.items()
    ]


def chart(rows: Rows) -> Any:
    """For each shift: distances as bars, a mean over seeds, and over SGLD steps and batches as lines."""
    alt = altair()
    records = tables(rows)
    every = some(rows, "samples", "distance")
    labels = list(dict.fromkeys(row["label"] for row in every))
    lines = []
    for shift in dict.fromkeys((row["shift"], row["severity"] or 0) for row in every):
        group = {
            part: [row for row in table if (row["shift"], row["severity"] or 0) == shift]
            for part, table in records.items()
        }
        name = spoken(shift[0]) + (f", severity {shift[1]}" if shift[1] else "")
        lines.append(_line(alt, group, labels, name))
    gone = len([row for row in rows if row["part"] != "picture" and not finite(row, *(n for n, _ in _DISTANCES))])
    notes = [
        "root mean square over pixels, values in [0, 1]; smaller: more like the test images; real: as many test images"
    ]
    notes += [f"{gone} values are not finite and not drawn"] if gone else []
    return finish(
        alt.vconcat(*lines, spacing=24),
        every,
        "How far samples of each model are from the test images",
        notes,
        f"Bars and lines of the distance of mean and covariance for {', '.join(labels)}.",
    )


def _line(alt: Any, group: dict[str, Rows], labels: list[str], shift: str) -> Any:
    colour, shape = coloured(alt, labels, title="samples of"), shaped(alt, labels, title="samples of")
    panels = [
        alt.Chart(alt.Data(values=group["distance"]))
        .mark_bar()
        .encode(
            x=alt.X("label:N", title=None, sort=labels).axis(labelAngle=-40, labelOverlap=False),
            y=alt.Y(f"{name}:Q", title=f"distance {title}").axis(tickCount=5),
            color=colour,
            tooltip=["label:N", "n:Q", "seeds:Q", alt.Tooltip(f"{name}:Q", format=".4g")],
        )
        .properties(title=title.removeprefix("of ").capitalize(), width=32 * len(group["distance"]), height=150)
        for name, title in _DISTANCES
    ]
    panels.append(
        alt.Chart(alt.Data(values=group["chain"]))
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="SGLD steps (log scale from 1)", scale=alt.Scale(type="symlog", constant=1)).axis(
                values=sorted({row["step"] for row in group["chain"]}), labelOverlap="greedy", grid=False
            ),
            y=alt.Y("mean_distance:Q", title="distance of means").scale(zero=False),
            color=colour,
            shape=shape,
            detail="seed:N",
            tooltip=["label:N", "step:Q", "energy:Q", "mean_distance:Q"],
        )
        .properties(title="Along the chains", width=150, height=150)
    )
    if group["buffer"]:
        panels.append(
            alt.Chart(alt.Data(values=group["buffer"]))
            .mark_line(point=True)
            .encode(
                x=alt.X("batch:Q", title="batches adapted on").axis(tickMinStep=1, format="d"),
                y=alt.Y("travelled:Q", title="way since batch 1 (RMS)"),
                color=colour,
                shape=shape,
                detail="seed:N",
                tooltip=["label:N", "batch:Q", "travelled:Q", "moved:Q", "mean_distance:Q"],
            )
            .properties(title="The buffer's drift", width=120, height=150)
        )
    return alt.hconcat(*panels, spacing=18).properties(title=shift)
