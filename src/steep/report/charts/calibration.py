"""Reliability histograms: accuracy by confidence, the gap to the diagonal, and how many answers each bar stands for."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, some
from steep.report.charts.style import altair, colour, finish

_COLUMNS = 4


def tables(rows: Rows) -> dict[str, Rows]:
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
        for row in some(rows, "calibration")
        if row["part"] == "bin" and row["n"]
    ]
    names = ("n", "accuracy", "ece", "mce", "brier", "nll", "nonfinite", "shifts", "seeds")
    errors = [{"label": r["label"], **{n: r[n] for n in names}} for r in some(rows, "calibration", "errors")]
    return {"bins": bins, "errors": errors}


def chart(rows: Rows) -> Any:
    """One panel for each method, counts below it."""
    alt = altair()
    records = tables(rows)
    most = max((row["n"] for row in records["bins"]), default=1)
    panels = []
    for index, errors in enumerate(records["errors"]):
        group = [row for row in records["bins"] if row["label"] == errors["label"]]
        panels.append(_panel(alt, group, errors, most, index % _COLUMNS == 0))
    every = some(rows, "calibration", "errors")
    uneven = len({(row["shift"], row["shifts"], row["seeds"], row["n"]) for row in every}) > 1
    shifts = every[0]["shift"] if every[0]["shifts"] <= 3 else f"{every[0]['shifts']} shifts together"
    shifts = "each method on sets of its own" if uneven else shifts
    finer = f"; ECE, MCE: of {every[0]['error_bins']} finer bins" if every[0].get("error_bins") else ""
    notes = [f"{shifts}{finer}"]
    notes += ["bars: accuracy of the answers in a bin; grey: gap to their mean confidence; dashed: calibrated"]
    notes += ["methods were not run on the same sets: do not compare them"] if uneven else []
    description = "; ".join(
        f"{e['label']}: ECE {_percent(e['ece'])}, MCE {_percent(e['mce'])}" for e in records["errors"]
    )
    return finish(
        alt.concat(*panels, columns=_COLUMNS, spacing=16),
        every,
        "Does confidence mean what it says?",
        notes,
        f"Reliability histograms of ten bins. {description}.",
    )


def _panel(alt: Any, group: Rows, errors: dict[str, Any], most: int, first: bool) -> Any:
    x = alt.X("low_percent:Q", title=None, scale=alt.Scale(domain=[0, 100])).axis(
        labels=False, values=[0, 20, 40, 60, 80, 100]
    )
    y = alt.Y("accuracy_percent:Q", title="accuracy (%)" if first else None, scale=alt.Scale(domain=[0, 100])).axis(
        labelOpacity=1 if first else 0
    )
    tip = [
        "n:Q",
        *(alt.Tooltip(f"{name}:Q", format=".1f") for name in ("confidence_percent", "accuracy_percent", "gap_points")),
    ]
    base = alt.Chart(alt.Data(values=group)).encode(x=x, x2="high_percent:Q", tooltip=tip)
    bars = base.mark_rect(color=colour(errors["label"]), stroke="white", strokeWidth=0.5).encode(y=y, y2=alt.datum(0))
    gap = base.mark_rect(color="#8c959f", opacity=0.45, stroke="#57606a", strokeWidth=1, strokeDash=[2, 2]).encode(
        y="accuracy_percent:Q", y2="confidence_percent:Q"
    )
    ends = [{"a": 0, "b": 0}, {"a": 100, "b": 100}]
    ideal = (
        alt.Chart(alt.Data(values=ends))
        .mark_line(strokeDash=[5, 4], color="#222222", strokeWidth=1.2)
        .encode(x="a:Q", y="b:Q")
    )
    subtitle = [f"ECE {_percent(errors['ece'])}, MCE {_percent(errors['mce'])}"]
    subtitle += [f"Brier {_number(errors['brier'])}, NLL {_number(errors['nll'])}"]
    if errors["nonfinite"]:
        subtitle += [f"{errors['nonfinite']} answers not finite: no bins"]
    title = {"text": errors["label"], "subtitle": subtitle, "subtitleFontSize": 11}
    upper = alt.layer(bars, gap, ideal).properties(width=140, height=140, title=title)
    lower = (
        alt.Chart(alt.Data(values=group))
        .mark_rect(color="#57606a", stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("low_percent:Q", title="confidence (%)", scale=alt.Scale(domain=[0, 100])).axis(
                values=[0, 50, 100]
            ),
            x2="high_percent:Q",
            y=alt.Y("n:Q", title="answers" if first else None, scale=alt.Scale(domain=[0, most])).axis(
                tickCount=2, labelOpacity=1 if first else 0
            ),
            y2=alt.datum(0),
            tooltip=["n:Q"],
        )
        .properties(width=140, height=45)
    )
    return alt.vconcat(upper, lower, spacing=6)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if finite({"v": value}, "v") else "NaN"


def _number(value: float) -> str:
    return f"{value:.3f}" if finite({"v": value}, "v") else "NaN"
