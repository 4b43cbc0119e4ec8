"""Reliability histograms: accuracy by confidence, the gap to the diagonal, and how many answers each bar stands for."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, grouped
from steep.report.charts.style import Chart, Drawing, Parts, altair, colour, plot
from steep.report.words import number

_COLUMNS, _SIDE = 2, 124
_ERRORS = ("label", "n", "accuracy", "ece", "mce", "brier", "nll", "nonfinite", "shifts", "seeds")


def _tables(parts: Parts) -> dict[str, Rows]:
    """The bins of each method, in percent, and its errors."""
    bins = [
        {
            "label": row["label"],
            "low_percent": 100 * row["low"],
            "high_percent": 100 * row["high"],
            "n": row["n"],
            "confidence_percent": 100 * row["confidence"],
            "accuracy_percent": 100 * row["accuracy"],
            "gap_points": 100 * (row["confidence"] - row["accuracy"]),
        }
        for row in parts["bin"]
        if row["n"]
    ]
    return {"bins": bins, "errors": [{name: row[name] for name in _ERRORS} for row in parts["errors"]]}


def _chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """One panel for each method, counts below it."""
    bins, errors, first = tables["bins"], tables["errors"], parts["errors"][0]
    most = max((row["n"] for row in bins), default=1)
    panels = [
        _panel([row for row in bins if row["label"] == one["label"]], one, most, index % _COLUMNS == 0)
        for index, one in enumerate(errors)
    ]
    uneven = len(grouped(parts["errors"], "shift", "shifts", "seeds", "n")) > 1
    shifts = first["shift"] if first["shifts"] <= 3 else f"{first['shifts']} shifts together"
    finer = f"; ECE, MCE: of {first['error_bins']} finer bins" if first.get("error_bins") else ""
    notes = [
        f"{'each method on sets of its own' if uneven else shifts}{finer}",
        "bars: accuracy of the answers in a bin; grey: gap to their mean confidence; dashed: calibrated",
        "methods were not run on the same sets: do not compare them" if uneven else "",
    ]
    each = "; ".join(f"{e['label']}: {_calibration_errors(e)}" for e in errors)
    whole = altair().concat(*panels, columns=_COLUMNS, spacing=16)
    return whole, "Does confidence mean what it says?", notes, f"Reliability histograms of ten bins. {each}."


def _panel(bins: Rows, errors: dict[str, Any], most: int, first: bool) -> Any:
    alt = altair()
    x = alt.X("low_percent:Q").scale(domain=[0, 100])
    opacity = 1 if first else 0  # of the labels of an axis that the panel to the left has too
    right = alt.Y("accuracy_percent:Q", title="accuracy (%)" if first else None).scale(domain=[0, 100])
    bar = {
        "x": x.title(None).axis(labels=False, values=[0, 20, 40, 60, 80, 100]),
        "x2": "high_percent:Q",
        "tip": "n:Q, confidence_percent:Q .1f, accuracy_percent:Q .1f, gap_points:Q .1f",
    }
    white = {"stroke": "white", "strokeWidth": 0.5}
    grey = {"color": "#8c959f", "opacity": 0.45, "stroke": "#57606a", "strokeWidth": 1, "strokeDash": [2, 2]}
    dashed = {"strokeDash": [5, 4], "color": "#222222", "strokeWidth": 1.2}
    upper = alt.layer(
        plot(
            "rect",
            bins,
            {"color": colour(errors["label"]), **white},
            y=right.axis(labelOpacity=opacity),
            y2=alt.datum(0),
            **bar,
        ),
        plot("rect", bins, grey, y="accuracy_percent:Q", y2="confidence_percent:Q", **bar),
        plot("line", [{"a": 0, "b": 0}, {"a": 100, "b": 100}], dashed, x="a:Q", y="b:Q"),
    )
    subtitle = [
        *_calibration_errors(errors).split(", "),
        f"Brier {number(errors['brier'], 3)}",
        f"NLL {number(errors['nll'], 3)}",
        *(["no bins:", f"{errors['nonfinite']} answers not finite"] if errors["nonfinite"] else []),
    ]
    count = alt.Y("n:Q", title="answers" if first else None).scale(domain=[0, most])
    lower = plot(
        "rect",
        bins,
        {"color": "#57606a", **white},
        "n:Q",
        x=x.title("confidence (%)").axis(values=[0, 50, 100]),
        x2="high_percent:Q",
        y=count.axis(tickCount=2, labelOpacity=opacity),
        y2=alt.datum(0),
    )
    title = {"text": errors["label"], "subtitle": subtitle}
    upper = upper.properties(width=_SIDE, height=_SIDE, title=title)
    return alt.vconcat(upper, lower.properties(width=_SIDE, height=45), spacing=6)


def _calibration_errors(errors: dict[str, Any]) -> str:
    return ", ".join(f"{name.upper()} {number(100 * errors[name], 1)} %" for name in ("ece", "mce"))


CHART = Chart("calibration", "errors", _tables, _chart)
