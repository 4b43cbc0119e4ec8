"""Energy reduction and accuracy gain against severity: over all corruptions, and for each."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, mean, order, some
from steep.report.charts.style import AMBER, BLUE, altair, finish, spoken

REDUCTION, GAIN = BLUE, AMBER
_COLUMNS = 5


def tables(rows: Rows) -> dict[str, Rows]:
    """Points, a mean over seeds for each shift and severity; their mean over shifts; and the rank correlations."""
    usable = [r for r in some(rows, "energy-severity", "point") if finite(r, "energy_reduction", "gain")]
    points = []
    for shift in order({row["shift"] for row in usable}):
        for severity in sorted({row["severity"] or 0 for row in usable if row["shift"] == shift}):
            group = [row for row in usable if (row["shift"], row["severity"] or 0) == (shift, severity)]
            numbers = {"energy_reduction": mean(group, "energy_reduction"), "gain_points": 100 * mean(group, "gain")}
            both = {f"{name}_percent": 100 * mean(group, name) for name in ("accuracy", "accuracy_source")}
            points.append({"shift": shift, "severity": severity, "seeds": len(group), **numbers, **both})
    graded = [point for point in points if point["severity"]]  # clean images and domains have no severity
    shifts = {point["shift"] for point in graded}
    overall = []
    for severity in sorted({point["severity"] for point in graded}):
        group = [point for point in graded if point["severity"] == severity]
        if len(group) == len(shifts):  # a mean over a part of the shifts would be another thing
            names = ("energy_reduction", "gain_points", "accuracy_percent", "accuracy_source_percent")
            overall.append({"severity": severity, "shifts": len(group), **{name: mean(group, name) for name in names}})
    ranks = [
        {"shift": row["shift"], "spearman": row["spearman"] if finite(row, "spearman") else None, "pairs": row["pairs"]}
        for row in rows
        if row["part"] == "correlation"
    ]
    return {"points": points, "overall": overall, "correlation": ranks}


def chart(rows: Rows) -> Any:
    """Above: means over all corruptions, and gain against reduction. Below: a small chart for each corruption."""
    alt = altair()
    every, records = some(rows, "energy-severity", "point"), tables(rows)
    points, rank = records["points"], {row["shift"]: row for row in records["correlation"]}
    if not points:
        raise _nothing(every)
    graded = [p for p in points if p["severity"]]
    domains = _domains([p["gain_points"] for p in points], [p["energy_reduction"] for p in points])
    severities = sorted({p["severity"] for p in graded})
    scatter = (
        alt.Chart(alt.Data(values=points))
        .mark_point(size=60, filled=True, stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("energy_reduction:Q", title="energy reduction (nats)").scale(zero=False),
            y=alt.Y("gain_points:Q", title="accuracy gain (points)").scale(zero=False),
            color=alt.Color("severity:O", title="severity", scale=alt.Scale(scheme="viridis", reverse=True)),
            tooltip=["shift:N", "severity:O", "energy_reduction:Q", "gain_points:Q"],
        )
        .properties(title=_titled("Every corruption and severity", rank.get("all")), width=230, height=210)
    )
    shifts = order({p["shift"] for p in graded})
    parts = [scatter]
    if graded:
        mean_of = {"text": "Mean over corruptions", "subtitle": f"{len(shifts)} corruptions", "subtitleFontSize": 10}
        both = _both(alt, records["overall"], severities, domains, (290, 210), mean_of, (True, True))
        small = []
        for index, shift in enumerate(shifts):
            group = [p for p in graded if p["shift"] == shift]
            ends = (index % _COLUMNS == 0, index % _COLUMNS == _COLUMNS - 1 or index == len(shifts) - 1)
            small.append(
                _both(alt, group, severities, domains, (98, 85), _titled(spoken(shift), rank.get(shift)), ends)
            )
        top = alt.hconcat(both, scatter, spacing=40).resolve_scale(color="independent")
        parts = [top, alt.concat(*small, columns=_COLUMNS, spacing=12)]
    notes = ["bars: accuracy gain over the source model, left; line: energy reduction, right"]
    lone = len([row for row in every if not finite(row, "energy_reduction", "gain")])
    notes += (
        [f"{lone} of {len(every)} runs lack a source model on the same images or are not finite: not drawn"]
        if lone
        else []
    )
    missing = len(shifts) * len(severities) - len(graded)
    notes += [f"{missing} of {len(shifts) * len(severities)} corruptions × severities are missing"] if missing else []
    return finish(
        alt.vconcat(*parts, spacing=24),
        every,
        f"Energy reduction and accuracy gain, by severity: {every[0]['label']}",
        notes,
        f"Bars and lines by severity over all and for each of {', '.join(map(spoken, shifts))}; "
        "a scatter plot of gain against energy reduction.",
    )


def _both(
    alt: Any,
    values: Rows,
    severities: list[int],
    domains: tuple[list[float], list[float]],
    size: tuple[int, int],
    title: Any,
    ends: tuple[bool, bool],
) -> Any:
    """Bars of the gain on the left axis, a line of the energy reduction on the right; the same scales everywhere."""
    small = size[1] < 150
    x = alt.X("severity:O", title=None if small else "severity", scale=alt.Scale(domain=severities)).axis(labelAngle=0)
    left, right = ("accuracy gain (points)", "energy reduction (nats)") if not small else (None, None)
    gain = alt.Y("gain_points:Q", scale=alt.Scale(domain=domains[0], nice=False)).axis(
        title=left, titleColor="#8a6100", tickCount=4, labels=ends[0]
    )
    fall = alt.Y("energy_reduction:Q", scale=alt.Scale(domain=domains[1], nice=False)).axis(
        title=right, titleColor=REDUCTION, tickCount=4, labels=ends[1], orient="right", grid=False
    )
    tip = ["severity:O", alt.Tooltip("gain_points:Q", format=".2f"), alt.Tooltip("energy_reduction:Q", format=".3f")]
    base = alt.Chart(alt.Data(values=values)).encode(x=x, tooltip=tip)
    bars = base.mark_bar(color=GAIN).encode(y=gain)
    dots = alt.OverlayMarkDef(color=REDUCTION, size=25 if small else 60)
    line = base.mark_line(color=REDUCTION, point=dots).encode(y=fall)
    drawn = alt.layer(bars, line).resolve_scale(y="independent")
    return drawn.properties(title=title, width=size[0], height=size[1])


def _domains(*sides: list[float]) -> tuple[list[float], list[float]]:
    """Give each side a range that holds all of it and some air, with zero at the same height on both."""
    lows = [min(0.0, *side, 0.0) for side in sides]
    highs = [max(0.0, *side, 0.0) or 1.0 for side in sides]
    below = max(-low / high for low, high in zip(lows, highs, strict=True))  # in heights above zero
    air = 0.06 * (1 + below)
    first, second = ([-(below + air if below else 0) * high, (1 + air) * high] for high in highs)
    return first, second


def _titled(name: str, rank: dict[str, Any] | None) -> Any:
    if rank is None or rank["spearman"] is None:
        return name
    return {
        "text": name,
        "subtitle": f"rank correlation {rank['spearman']:.2f}".replace("-", "−"),
        "subtitleFontSize": 10,
    }


def _nothing(every: Rows) -> Exception:
    from steep.errors import InputError

    return InputError(
        f"chart energy-severity: none of {len(every)} runs has a source model on the same images. "
        "Add the method source to the recipe"
    )
