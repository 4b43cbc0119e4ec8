"""Energy, loss and accuracy over adaptation steps on the same images."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, grouped, means, some
from steep.report.charts.style import altair, by_label, finish, plot

_PANELS = {"energy": "mean energy (nats)", "loss": "mean loss (nats)", "accuracy_percent": "accuracy (%)"}


def tables(rows: Rows) -> dict[str, Rows]:
    """The mean over shifts and seeds at each step, where every shift has that step; and each shift by itself."""
    every = some(rows, "energy-steps")
    names = ("label", "shift", "severity", "seed", "step", "energy", "loss")
    shifts = [
        {**{name: row[name] for name in names}, "accuracy_percent": 100 * row["accuracy"]}
        for row in every
        if finite(row, "energy", "loss")
    ]
    averages = []
    for (label,), group in grouped(every, "label").items():
        runs = grouped(group, "shift", "severity", "seed")
        for (step,), of_step in sorted(grouped([r for r in shifts if r["label"] == label], "step").items()):
            if len(of_step) == len(runs):  # a mean over a part of the shifts would be another thing
                averages.append({"label": label, "step": step, "runs": len(of_step), **means(of_step, *_PANELS)})
    return {"mean": averages, "shifts": shifts}


def chart(rows: Rows, records: dict[str, Rows]) -> Any:
    """Three panels: means over the shifts, of a lone method also the shifts; dashed is the source model."""
    alt = altair()
    every, averages, shifts = some(rows, "energy-steps"), records["mean"], records["shifts"]
    labels = list(dict.fromkeys(row["label"] for row in every))
    colour, shape = by_label(labels)
    steppers = [label for label in labels if _moves(shifts, label)]
    thin = [row for row in shifts if [row["label"]] == steppers]  # of several methods, every shift would be a tangle
    # a method that takes no step is a level, drawn across
    moving = [row for row in averages if _moves(averages, row["label"])]
    level = [row for row in averages if row not in moving]
    panels = []
    for name, title in _PANELS.items():
        x = alt.X("step:Q", title="adaptation steps").axis(tickMinStep=1, format="d")
        y = alt.Y(f"{name}:Q", title=title).scale(zero=False)
        tip = f"label:N, step:Q, {name}:Q .4g"
        thick = {"x": x, "y": y, "color": colour, "tip": f"{tip}, runs:Q"}
        layers = [
            plot("line", moving, {"strokeWidth": 2.5}, **thick),
            plot("point", moving, {"size": 45}, shape=shape, **thick),
            plot("rule", level, {"strokeWidth": 2, "strokeDash": [6, 4]}, f"{tip}, runs:Q", y=y, color=colour),
        ]
        if thin:
            look, each = {"strokeWidth": 1, "opacity": 0.35}, ["shift:N", "severity:N", "seed:N"]
            layers.append(plot("line", thin, look, f"shift:N, {tip}", x=x, y=y, color=colour, detail=each))
        panels.append(alt.layer(*layers).properties(title=title.split(" (")[0].capitalize(), width=335, height=150))
    runs, gone = grouped(every, "shift", "severity"), len(every) - len(shifts)
    notes = [
        f"mean over {len(runs)} shifts; dashed: a model that takes no steps" + ("; thin: each shift" if thin else ""),
        f"{gone} points are not finite and not drawn" if gone else "",
    ]
    return finish(
        alt.vconcat(*panels, spacing=20),
        every,
        "Energy, loss and accuracy over adaptation steps on the same images",
        notes,
        f"Three line charts over adaptation steps for {', '.join(labels)}.",
    )


def _moves(rows: Rows, label: str) -> bool:
    return len({row["step"] for row in rows if row["label"] == label}) > 1
