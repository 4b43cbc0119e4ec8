"""Accuracy against one hyper-parameter at a time, for every corruption."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, mean, order, some
from steep.report.charts.style import FAMILY_COLOURS, REAL, altair, family, finish, spoken

_ORDER = ("sgld_rate", "sgld_steps", "lr", "batch_size", "chains")


def tables(rows: Rows) -> dict[str, Rows]:
    """Each shift by itself, a mean over seeds; the mean over shifts, at values every shift has; the source model."""
    points = []
    every = [row for row in some(rows, "sensitivity", "point") if finite(row, "value", "accuracy")]
    for key in sorted({(row["parameter"], row["shift"], row["severity"] or 0, row["value"]) for row in every}):
        parameter, shift, severity, value = key
        group = [r for r in every if (r["parameter"], r["shift"], r["severity"] or 0, r["value"]) == key]
        about = {"parameter": parameter, "shift": shift, "severity": severity, "family": family(shift), "value": value}
        usual = any(row["usual"] for row in group)
        points.append({**about, "usual": usual, "seeds": len(group), "accuracy_percent": 100 * mean(group, "accuracy")})
    means = []
    for parameter in dict.fromkeys(point["parameter"] for point in points):
        same = [point for point in points if point["parameter"] == parameter]
        shifts = {(point["shift"], point["severity"]) for point in same}
        for value in sorted({point["value"] for point in same}):
            group = [point for point in same if point["value"] == value]
            if len(group) == len(shifts):  # a mean over a part of the shifts would be another thing
                about = {"parameter": parameter, "value": value, "usual": group[0]["usual"], "shifts": len(group)}
                means.append({**about, "accuracy_percent": mean(group, "accuracy_percent")})
    source = [
        {"shift": row["shift"], "severity": row["severity"] or 0, "accuracy_percent": 100 * row["accuracy"]}
        for row in rows
        if row["part"] == "source"
    ]
    return {"points": points, "mean": means, "source": source}


def chart(rows: Rows) -> Any:
    """A panel for each parameter: a line for each corruption, a thick one for their mean, a dot on the usual value."""
    alt = altair()
    every, records = some(rows, "sensitivity", "point"), tables(rows)
    families = [name for name in FAMILY_COLOURS if any(p["family"] == name for p in records["points"])]
    scale = alt.Scale(domain=families, range=[FAMILY_COLOURS[name] for name in families])
    panels = []
    names = {point["parameter"] for point in records["points"]}
    for parameter in [n for n in _ORDER if n in names] + sorted(names - set(_ORDER)):
        group = [point for point in records["points"] if point["parameter"] == parameter]
        means = [point for point in records["mean"] if point["parameter"] == parameter]
        kind = "log" if min(point["value"] for point in group) > 0 else "linear"
        x = alt.X(
            "value:Q",
            title=spoken(parameter) + (" (log scale)" if kind == "log" else ""),
            scale=alt.Scale(type=kind, nice=False, padding=8),
        ).axis(values=sorted({point["value"] for point in group}), format="~g", labelOverlap="greedy", grid=False)
        y = alt.Y("accuracy_percent:Q", title="accuracy (%)").scale(zero=False)
        tip = ["shift:N", "severity:Q", "value:Q", alt.Tooltip("accuracy_percent:Q", format=".2f"), "seeds:Q"]
        thin = (
            alt.Chart(alt.Data(values=group))
            .mark_line(strokeWidth=1.5, opacity=0.65, point=alt.OverlayMarkDef(size=18))
            .encode(
                x=x, y=y, color=alt.Color("family:N", title="corruption", scale=scale), detail="shift:N", tooltip=tip
            )
        )
        thick = (
            alt.Chart(alt.Data(values=means)).mark_line(strokeWidth=3.5, color=REAL).encode(x=x, y=y, tooltip=tip[2:4])
        )
        usual = [point for point in means if point["usual"]]
        dot = (
            alt.Chart(alt.Data(values=usual))
            .mark_point(size=140, filled=True, opacity=1, color="white", stroke=REAL, strokeWidth=3)
            .encode(x=x, y=y, tooltip=tip[2:4])
        )
        panels.append(alt.layer(thin, thick, dot).properties(title=spoken(parameter), width=300, height=190))
    shifts = order({point["shift"] for point in records["points"]})
    notes = [f"method: {every[0]['label']}; black: mean over {len(shifts)} corruptions; ring: the usual value"]
    every_value, with_mean = ({(p["parameter"], p["value"]) for p in records[part]} for part in ("points", "mean"))
    partial = [f"{spoken(name)} {value:g}" for name, value in sorted(every_value - with_mean)]
    notes += [f"not run for every corruption, so without a mean: {', '.join(partial)}"] if partial else []
    gone = len(every) - len([row for row in every if finite(row, "value", "accuracy")])
    notes += [f"{gone} runs are not finite and not drawn"] if gone else []
    if records["source"]:
        notes.append(f"source model: {mean(records['source'], 'accuracy_percent'):.1f} % mean accuracy")
    return finish(
        alt.concat(*panels, columns=2, spacing=28),
        every,
        "Accuracy against each hyper-parameter",
        notes,
        f"Accuracy against {', '.join(map(spoken, sorted(names)))} for {', '.join(map(spoken, shifts))}.",
    )
