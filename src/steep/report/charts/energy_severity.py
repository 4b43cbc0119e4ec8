"""Energy reduction and accuracy gain against severity: over all corruptions, and for each."""

from __future__ import annotations

from typing import Any

from steep.errors import InputError
from steep.report.charts.rows import Rows, finite, grouped, mean, means, some
from steep.report.charts.style import AMBER, BLUE, altair, finish, plot, spoken
from steep.report.paper import in_order

REDUCTION, GAIN = BLUE, AMBER
_COLUMNS = 3


def tables(rows: Rows) -> dict[str, Rows]:
    """Points, a mean over seeds for each shift and severity; their mean over shifts; and the rank correlations."""
    usable = [r for r in some(rows, "energy-severity", "point") if finite(r, "energy_reduction", "gain")]
    points = []
    for shift in in_order(row["shift"] for row in usable):
        for (severity,), group in sorted(grouped([r for r in usable if r["shift"] == shift], "severity").items()):
            numbers = {"energy_reduction": mean(group, "energy_reduction"), "gain_points": 100 * mean(group, "gain")}
            both = {f"{name}_percent": 100 * mean(group, name) for name in ("accuracy", "accuracy_source")}
            points.append({"shift": shift, "severity": severity, "seeds": len(group), **numbers, **both})
    graded = [point for point in points if point["severity"]]  # clean images and domains have no severity
    names = ("energy_reduction", "gain_points", "accuracy_percent", "accuracy_source_percent")
    overall = [
        {"severity": severity, "shifts": len(group), **means(group, *names)}
        for (severity,), group in sorted(grouped(graded, "severity").items())
        if len(group) == len(grouped(graded, "shift"))  # a mean over a part of the shifts would be another thing
    ]
    ranks = [
        {"shift": row["shift"], "spearman": row["spearman"] if finite(row, "spearman") else None, "pairs": row["pairs"]}
        for row in rows
        if row["part"] == "correlation"
    ]
    return {"points": points, "overall": overall, "correlation": ranks}


def chart(rows: Rows, records: dict[str, Rows]) -> Any:
    """Above: means over all corruptions, and gain against reduction. Below: a small chart for each corruption."""
    alt = altair()
    every, points = some(rows, "energy-severity", "point"), records["points"]
    if not points:
        raise InputError(
            f"chart energy-severity: none of {len(every)} runs has a source model on the same images. "
            "Add the method source to the recipe"
        )
    rank = {row["shift"]: row["spearman"] for row in records["correlation"]}
    graded = [p for p in points if p["severity"]]
    domains = _domains([p["gain_points"] for p in points], [p["energy_reduction"] for p in points])
    severities, shifts = sorted({p["severity"] for p in graded}), in_order(p["shift"] for p in graded)
    scatter = plot(
        "point",
        points,
        {"size": 60, "filled": True, "stroke": "white", "strokeWidth": 0.5},
        "shift:N, severity:O, energy_reduction:Q, gain_points:Q",
        x=alt.X("energy_reduction:Q", title="energy reduction (nats)").scale(zero=False),
        y=alt.Y("gain_points:Q", title="accuracy gain (points)").scale(zero=False),
        color=alt.Color("severity:O", title="severity").scale(scheme="viridis", reverse=True),
    ).properties(title=_titled("Every corruption and severity", rank.get("all")), width=290, height=210)
    parts = [scatter]
    if graded:
        mean_of = {"text": "Mean over corruptions", "subtitle": f"{len(shifts)} corruptions"}
        both = _both(records["overall"], severities, domains, (True, True), mean_of)
        small = []
        for index, shift in enumerate(shifts):
            group = [p for p in graded if p["shift"] == shift]
            ends = (index % _COLUMNS == 0, index % _COLUMNS == _COLUMNS - 1 or index == len(shifts) - 1)
            title = {**_titled(spoken(shift).split(), rank.get(shift), "rank"), "fontSize": 12}
            small.append(_both(group, severities, domains, ends, title, small=True))
        parts = [both, scatter, alt.concat(*small, columns=_COLUMNS, spacing=16)]
    lone = len([row for row in every if not finite(row, "energy_reduction", "gain")])
    whole = len(shifts) * len(severities)
    missing = whole - len(graded)
    notes = [
        "bars: accuracy gain over the source model, left; line: energy reduction, right; "
        "rank: the rank correlation of both",
        f"{lone} of {len(every)} runs lack a source model on the same images or are not finite: not drawn"
        if lone
        else "",
        f"{missing} of {whole} corruptions × severities are missing" if missing else "",
    ]
    return finish(
        alt.vconcat(*parts, spacing=24).resolve_scale(color="independent"),
        every,
        f"Energy reduction and accuracy gain, by severity: {every[0]['label']}",
        notes,
        f"Bars and lines by severity over all and for each of {', '.join(map(spoken, shifts))}; "
        "a scatter plot of gain against energy reduction.",
    )


def _both(
    values: Rows,
    severities: list[int],
    domains: list[list[float]],
    ends: tuple[bool, bool],
    title: Any,
    *,
    small: bool = False,
) -> Any:
    """Bars of the gain on the left axis, a line of the energy reduction on the right; the same scales everywhere."""
    alt = altair()
    left, right, below = (
        (None, None, None) if small else ("accuracy gain (points)", "energy reduction (nats)", "severity")
    )
    base = {
        "x": alt.X("severity:O", title=below).scale(domain=severities).axis(labelAngle=0),
        "tip": "severity:O, gain_points:Q .2f, energy_reduction:Q .3f",
    }
    gain = alt.Y("gain_points:Q").scale(domain=domains[0], nice=False)
    fall = alt.Y("energy_reduction:Q").scale(domain=domains[1], nice=False)
    gain = gain.axis(title=left, titleColor="#8a6100", tickCount=4, labels=ends[0])
    fall = fall.axis(title=right, titleColor=REDUCTION, tickCount=4, labels=ends[1], orient="right", grid=False)
    dots = alt.OverlayMarkDef(color=REDUCTION, size=25 if small else 60)
    drawn = alt.layer(
        plot("bar", values, {"color": GAIN}, y=gain, **base),
        plot("line", values, {"color": REDUCTION, "point": dots}, y=fall, **base),
    ).resolve_scale(y="independent")
    return drawn.properties(title=title, width=84 if small else 270, height=85 if small else 210)


def _domains(*sides: list[float]) -> list[list[float]]:
    """Give each side a range that holds all of it and some air, with zero at the same height on both."""
    lows = [min(0.0, *side, 0.0) for side in sides]
    highs = [max(0.0, *side, 0.0) or 1.0 for side in sides]
    below = max(-low / high for low, high in zip(lows, highs, strict=True))  # in heights above zero
    air = 0.06 * (1 + below)
    return [[-(below + air if below else 0) * high, (1 + air) * high] for high in highs]


def _titled(name: str | list[str], rank: float | None, words: str = "rank correlation") -> dict[str, Any]:
    return {"text": name, "subtitle": "" if rank is None else f"{words} {rank:.2f}".replace("-", "−")}
