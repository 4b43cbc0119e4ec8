"""Energy, loss and accuracy over adaptation steps on the same images."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, mean, some
from steep.report.charts.style import altair, coloured, finish, shaped

_PANELS = (("energy", "mean energy (nats)"), ("loss", "mean loss (nats)"), ("accuracy_percent", "accuracy (%)"))


def tables(rows: Rows) -> dict[str, Rows]:
    """The mean over shifts and seeds at each step, where every shift has that step; and each shift by itself."""
    every = some(rows, "energy-steps")
    shifts = [
        {
            "label": row["label"],
            "shift": row["shift"],
            "severity": row["severity"] or 0,
            "seed": row["seed"],
            "step": row["step"],
            "energy": row["energy"],
            "loss": row["loss"],
            "accuracy_percent": 100 * row["accuracy"],
        }
        for row in every
        if finite(row, "energy", "loss")
    ]
    means = []
    for label in dict.fromkeys(row["label"] for row in every):
        runs = {(row["shift"], row["severity"], row["seed"]) for row in every if row["label"] == label}
        for step in sorted({row["step"] for row in shifts if row["label"] == label}):
            group = [row for row in shifts if (row["label"], row["step"]) == (label, step)]
            if len(group) == len(runs):  # a mean over a part of the shifts would be another thing
                numbers = {name: mean(group, name) for name, _ in _PANELS}
                means.append({"label": label, "step": step, "runs": len(group), **numbers})
    return {"mean": means, "shifts": shifts}


def chart(rows: Rows) -> Any:
    """Three panels: means over the shifts, of a lone method also the shifts; dashed is the source model."""
    alt = altair()
    every, records = some(rows, "energy-steps"), tables(rows)
    labels = list(dict.fromkeys(row["label"] for row in every))
    colour = coloured(alt, labels)
    steppers = [label for label in labels if _moves(records["shifts"], label)]
    alone = steppers[0] if len(steppers) == 1 else None
    panels = []
    for name, title in _PANELS:
        x = alt.X("step:Q", title="adaptation steps").axis(tickMinStep=1, format="d")
        y = alt.Y(f"{name}:Q", title=title).scale(zero=False)
        # a method that takes no step is a level, drawn across
        moving = [row for row in records["mean"] if _moves(records["mean"], row["label"])]
        level = [row for row in records["mean"] if row not in moving]
        tip = ["label:N", "step:Q", alt.Tooltip(f"{name}:Q", format=".4g"), "runs:Q"]
        thick = alt.Chart(alt.Data(values=moving)).encode(x=x, y=y, color=colour, tooltip=tip)
        layers = [
            thick.mark_line(strokeWidth=2.5),
            thick.mark_point(size=45).encode(shape=shaped(alt, labels)),
            alt.Chart(alt.Data(values=level))
            .mark_rule(strokeWidth=2, strokeDash=[6, 4])
            .encode(y=y, color=colour, tooltip=tip),
        ]
        if alone:  # of several methods, every shift would be a tangle
            group = [row for row in records["shifts"] if row["label"] == alone]
            layers.append(
                alt.Chart(alt.Data(values=group))
                .mark_line(strokeWidth=1, opacity=0.35)
                .encode(
                    x=x, y=y, color=colour, detail=["shift:N", "severity:N", "seed:N"], tooltip=["shift:N", *tip[:3]]
                )
            )
        panels.append(alt.layer(*layers).properties(title=title.split(" (")[0].capitalize(), width=205, height=220))
    runs = {(row["shift"], row["severity"]) for row in every}
    gone = len(every) - len(records["shifts"])
    notes = [
        f"mean over {len(runs)} shifts; dashed: a model that takes no steps" + ("; thin: each shift" if alone else "")
    ]
    notes += [f"{gone} points are not finite and not drawn"] if gone else []
    return finish(
        alt.hconcat(*panels, spacing=28),
        every,
        "Energy, loss and accuracy over adaptation steps on the same images",
        notes,
        f"Three line charts over adaptation steps for {', '.join(labels)}.",
    )


def _moves(rows: Rows, label: str) -> bool:
    return len({row["step"] for row in rows if row["label"] == label}) > 1
