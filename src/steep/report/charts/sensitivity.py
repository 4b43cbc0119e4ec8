"""Accuracy against one hyper-parameter at a time, for every corruption."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, averaged, finite, grouped, mean
from steep.report.charts.style import (
    REAL,
    Chart,
    Drawing,
    Parts,
    altair,
    by_family,
    cut,
    family,
    not_drawn,
    plot,
    spoken,
)
from steep.report.paper import in_order

_ORDER = ("sgld_rate", "sgld_steps", "lr", "batch_size", "chains")


def _tables(parts: Parts) -> dict[str, Rows]:
    """Each shift by itself, a mean over seeds; the mean over shifts, at values every shift has; the source model."""
    points: Rows = []
    known = [row for row in parts["point"] if finite(row, "value", "accuracy")]
    for key, group in sorted(grouped(known, "parameter", "shift", "severity", "value").items()):
        parameter, shift, severity, value = key
        about = {"parameter": parameter, "shift": shift, "severity": severity, "family": family(shift), "value": value}
        usual = any(row["usual"] for row in group)
        points.append({**about, "usual": usual, "seeds": len(group), "accuracy_percent": 100 * mean(group, "accuracy")})
    means: Rows = []
    for same in grouped(points, "parameter").values():
        by_value, shifts = sorted(same, key=lambda point: point["value"]), len(grouped(same, "shift", "severity"))
        means += averaged(by_value, ("parameter", "value", "usual"), ["accuracy_percent"], "shifts", shifts)
    source = [
        {"shift": row["shift"], "severity": row["severity"], "accuracy_percent": 100 * row["accuracy"]}
        for row in parts["source"]
    ]
    return {"points": points, "mean": means, "source": source}


def _chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """A panel for each parameter: a line for each corruption, a thick one for their mean, a dot on the usual value."""
    every, points, averages, source = parts["point"], tables["points"], tables["mean"], tables["source"]
    colour, _ = by_family(points, "corruption")
    names = {point["parameter"] for point in points}
    of_points, of_averages = grouped(points, "parameter"), grouped(averages, "parameter")
    panels = [
        _panel(of_points[name,], of_averages.get((name,), []), colour)
        for name in [n for n in _ORDER if n in names] + sorted(names - set(_ORDER))
    ]
    shifts = in_order(point["shift"] for point in points)
    partial = sorted(set(grouped(points, "parameter", "value")) - set(grouped(averages, "parameter", "value")))
    without = ", ".join(f"{spoken(name)} {value:g}" for name, value in partial)
    notes = [
        f"method: {every[0]['label']}; black: mean over {len(shifts)} corruptions; ring: the usual value",
        cut("accuracy"),
        f"not run for every corruption, so without a mean: {without}" if partial else "",
        not_drawn(sum(not finite(row, "value", "accuracy") for row in every), "runs"),
        f"source model: {mean(source, 'accuracy_percent'):.1f} % mean accuracy" if source else "",
    ]
    return (
        altair().concat(*panels, columns=2, spacing=16).resolve_scale(y="shared"),
        "Accuracy against each hyper-parameter",
        notes,
        f"Accuracy against {', '.join(map(spoken, sorted(names)))} for {', '.join(map(spoken, shifts))}.",
    )


def _panel(points: Rows, averages: Rows, colour: Any) -> Any:
    alt = altair()
    name, values = spoken(points[0]["parameter"]), sorted({point["value"] for point in points})
    kind = "log" if values[0] > 0 else "linear"
    x = alt.X("value:Q", title=name + (" (log scale)" if kind == "log" else ""))
    x = x.scale(type=kind, nice=False, padding=8).axis(values=values, format="~g", labelOverlap="greedy", grid=False)
    both = {"x": x, "y": alt.Y("accuracy_percent:Q", title="accuracy (%)").scale(zero=False)}
    tip = "value:Q, accuracy_percent:Q .2f"
    look = {"strokeWidth": 1.5, "opacity": 0.65, "point": alt.OverlayMarkDef(size=18)}
    ring = {"size": 140, "filled": True, "opacity": 1, "color": "white", "stroke": REAL, "strokeWidth": 3}
    layers = [
        plot("line", points, look, f"shift:N, severity:Q, {tip}, seeds:Q", color=colour, detail="shift:N", **both),
        plot("line", averages, {"strokeWidth": 3.5, "color": REAL}, tip, **both),
        plot("point", [point for point in averages if point["usual"]], ring, tip, **both),
    ]
    return alt.layer(*layers).properties(title=name, width=140, height=160)


CHART = Chart("sensitivity", "point", _tables, _chart)
