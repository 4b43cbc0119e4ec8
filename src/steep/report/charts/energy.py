"""What energy has to do with errors: three charts, by image, by adaptation step and by severity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steep.errors import InputError
from steep.report.charts.rows import Rows, averaged, finite, grouped
from steep.report.charts.style import (
    AMBER,
    BLUE,
    Chart,
    Drawing,
    Parts,
    altair,
    by_family,
    by_label,
    cut,
    family,
    not_drawn,
    plot,
    spoken,
)
from steep.report.paper import in_order

MOST_GROUPS = 12
REDUCTION, GAIN = BLUE, AMBER
_STEPS = {"energy": "mean energy (nats)", "loss": "mean loss (nats)", "accuracy_percent": "accuracy (%)"}
_COLUMNS = 3


def _error_tables(parts: Parts) -> dict[str, Rows]:
    """Groups of energy over all shifts together, two merged to one until they are few; and a point for each shift."""
    points = [
        {
            "shift": row["shift"],
            "severity": row["severity"],
            "family": family(row["shift"]),
            "strength": row["severity"] or 5,  # what is not graded is drawn in full
            "energy": row["energy"],
            "loss": row["loss"],
            "error_percent": 100 * row["error"],
            "n": row["n"],
        }
        for row in parts["shift"]
        if finite(row, "energy", "loss")
    ]
    pieces = [(row["energy_low"], row["energy_high"], row["n"], row["wrong"]) for row in parts["group"]]
    while len({piece[:2] for piece in pieces}) > MOST_GROUPS:
        pieces = [_wider(*piece) for piece in pieces]
    groups = []
    for low, high in sorted({piece[:2] for piece in pieces}):
        n, wrong = (sum(piece[i] for piece in pieces if piece[:2] == (low, high)) for i in (2, 3))
        counts = {"n": n, "wrong": wrong, "error_percent": 100 * wrong / n}
        groups.append({"energy_low": low, "energy_high": high, **counts})
    return {"groups": groups, "shifts": points}


def _wider(low: float, high: float, n: int, wrong: int) -> tuple[float, float, int, int]:
    width = 2 * (high - low)
    start = width * (low // width)
    return start, start + width, n, wrong


def _error_chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """Bars above: error rate by energy. Points below: loss against energy, one for each shift."""
    alt, groups, shifts = altair(), tables["groups"], tables["shifts"]
    bars = plot(
        "rect",
        groups,
        {"color": BLUE, "stroke": "white"},
        "energy_low:Q, energy_high:Q, n:Q, wrong:Q, error_percent:Q .1f",
        x=alt.X("energy_low:Q", title="energy (nats; low: the image is likely)").scale(zero=False),
        x2="energy_high:Q",
        y=alt.Y("error_percent:Q", title="error rate (%)").scale(domain=[0, 100]),
        y2=alt.datum(0),
    ).properties(title=f"Error rate by energy, {sum(g['n'] for g in groups):,} images", width=305, height=220)
    look = {"dy": -7, "color": "#57606a"}
    counts = plot("text", groups, look, x="middle:Q", y="error_percent:Q", text=alt.Text("n:Q", format=".2~s"))
    counts = counts.transform_calculate(middle="(datum.energy_low + datum.energy_high) / 2")
    colour, shape = by_family(shifts, "shift")
    strength = alt.Opacity("strength:Q", title="severity").scale(domain=[1, 5], range=[0.3, 1])
    points = plot(
        "point",
        shifts,
        {"size": 75, "stroke": "white", "strokeWidth": 0.5},
        "shift:N, severity:Q, energy:Q, loss:Q, error_percent:Q .1f",
        x=alt.X("energy:Q", title="mean energy (nats)").scale(zero=False),
        y=alt.Y("loss:Q", title="mean loss (cross-entropy, nats)"),
        color=colour,
        shape=shape,
        opacity=strength.legend(values=[1, 3, 5], symbolFillColor="#444444", symbolStrokeColor="#444444"),
    ).properties(title="Loss against energy, a point for each shift", width=305, height=220)
    gone = len(parts["shift"]) - len(shifts)
    names = ", ".join(map(spoken, in_order(point["shift"] for point in shifts)))
    return (
        alt.vconcat(alt.layer(bars, counts), points, spacing=28),
        f"Energy and errors: {parts['shift'][0]['label']}",
        [
            f"over each bar: its images; {cut('energy')}",
            f"{gone} shifts with answers that are not finite are not drawn" if gone else "",
        ],
        f"Above: error rate in groups of equal width in energy. Below: mean loss against mean energy for {names}.",
    )


def _step_tables(parts: Parts) -> dict[str, Rows]:
    """The mean over shifts and seeds at each step, where every shift has that step; and each shift by itself."""
    names = ("label", "shift", "severity", "seed", "step", "energy", "loss")
    shifts = [
        {**{name: row[name] for name in names}, "accuracy_percent": 100 * row["accuracy"]}
        for row in parts["step"]
        if finite(row, "energy", "loss")
    ]
    means: Rows = []
    for (label,), group in grouped(parts["step"], "label").items():
        mine = sorted((row for row in shifts if row["label"] == label), key=lambda row: row["step"])
        means += averaged(mine, ("label", "step"), _STEPS, "runs", len(grouped(group, "shift", "severity", "seed")))
    return {"mean": means, "shifts": shifts}


def _step_chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """Three panels: means over the shifts, of a lone method also the shifts; dashed is the source model."""
    alt, every, averages, shifts = altair(), parts["step"], tables["mean"], tables["shifts"]
    labels = list(dict.fromkeys(row["label"] for row in every))
    colour, shape = by_label(labels)
    steppers = [label for label in labels if _moves(shifts, label)]
    thin = [row for row in shifts if [row["label"]] == steppers]  # of several methods, every shift would be a tangle
    # a method that takes no step is a level, drawn across
    moving = [row for row in averages if _moves(averages, row["label"])]
    level = [row for row in averages if row not in moving]
    panels = []
    for name, title in _STEPS.items():
        x = alt.X("step:Q", title="adaptation steps").axis(tickMinStep=1, format="d")
        y = alt.Y(f"{name}:Q", title=title).scale(zero=name != "energy")
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
    over = f"mean over {len(grouped(every, 'shift', 'severity'))} shifts; dashed: a model that takes no steps"
    return (
        alt.vconcat(*panels, spacing=20),
        "Energy, loss and accuracy over adaptation steps on the same images",
        [over + ("; thin: each shift" if thin else ""), cut("energy"), not_drawn(len(every) - len(shifts), "points")],
        f"Three line charts over adaptation steps for {', '.join(labels)}.",
    )


def _moves(rows: Rows, label: str) -> bool:
    return len({row["step"] for row in rows if row["label"] == label}) > 1


def _severity_tables(parts: Parts) -> dict[str, Rows]:
    """Points, a mean over seeds for each shift and severity; their mean over shifts; and the rank correlations."""
    known = [row for row in parts["point"] if finite(row, "energy_reduction", "gain")]
    numbers = ("energy_reduction", "gain", "accuracy", "accuracy_source")
    places = {shift: place for place, shift in enumerate(in_order(row["shift"] for row in known))}
    known.sort(key=lambda row: (places[row["shift"]], row["severity"]))
    points = []
    for p in averaged(known, ("shift", "severity"), numbers, "seeds"):
        about = {name: p[name] for name in ("shift", "severity", "seeds", "energy_reduction")}
        percent = {f"{name}_percent": 100 * p[name] for name in ("accuracy", "accuracy_source")}
        points.append({**about, "gain_points": 100 * p["gain"], **percent})
    graded = sorted((p for p in points if p["severity"]), key=lambda p: p["severity"])  # clean images have none
    names = ("energy_reduction", "gain_points", "accuracy_percent", "accuracy_source_percent")
    ranks = [
        {"shift": row["shift"], "spearman": row["spearman"] if finite(row, "spearman") else None, "pairs": row["pairs"]}
        for row in parts["correlation"]
    ]
    overall = averaged(graded, ["severity"], names, "shifts", len(grouped(graded, "shift")))
    return {"points": points, "overall": overall, "correlation": ranks}


def _severity_chart(parts: Parts, tables: dict[str, Rows]) -> Drawing:
    """Above: means over all corruptions, and gain against reduction. Below: a small chart for each corruption."""
    alt, every, points = altair(), parts["point"], tables["points"]
    if not points:
        raise InputError(
            f"chart energy-severity: none of {len(every)} runs has a source model on the same images. "
            "Add the method source to the recipe"
        )
    rank = {row["shift"]: row["spearman"] for row in tables["correlation"]}
    graded = [p for p in points if p["severity"]]
    severities, shifts = sorted({p["severity"] for p in graded}), in_order(p["shift"] for p in graded)
    scatter = plot(
        "point",
        points,
        {"size": 60, "filled": True, "stroke": "white", "strokeWidth": 0.5},
        "shift:N, severity:O, energy_reduction:Q, gain_points:Q",
        x=alt.X("energy_reduction:Q", title="energy reduction (nats)"),
        y=alt.Y("gain_points:Q", title="accuracy gain (points)"),
        color=alt.Color("severity:O", title="severity").scale(scheme="viridis", reverse=True),
    ).properties(title=_titled("Every corruption and severity", rank.get("all")), width=290, height=210)
    rows = [scatter]
    if graded:
        domains = _domains([p["gain_points"] for p in points], [p["energy_reduction"] for p in points])
        mean_of = {"text": "Mean over corruptions", "subtitle": f"{len(shifts)} corruptions"}
        both = _both(tables["overall"], severities, domains, (True, True), mean_of)
        small = []
        for index, shift in enumerate(shifts):
            group = [p for p in graded if p["shift"] == shift]
            ends = (index % _COLUMNS == 0, index % _COLUMNS == _COLUMNS - 1 or index == len(shifts) - 1)
            title = {**_titled(spoken(shift).split(), rank.get(shift), "rank"), "fontSize": 12}
            small.append(_both(group, severities, domains, ends, title, small=True))
        rows = [both, scatter, alt.concat(*small, columns=_COLUMNS, spacing=16)]
    lone = sum(not finite(row, "energy_reduction", "gain") for row in every)
    unlike = f"{lone} of {len(every)} runs lack a source model on the same images or are not finite: not drawn"
    whole = len(shifts) * len(severities)
    missing = whole - len(graded)
    notes = [
        "bars: accuracy gain over the source model, left; line: energy reduction, right; "
        "rank: the rank correlation of both",
        unlike if lone else "",
        f"{missing} of {whole} corruptions × severities are missing" if missing else "",
    ]
    return (
        alt.vconcat(*rows, spacing=24).resolve_scale(color="independent"),
        f"Energy reduction and accuracy gain, by severity: {every[0]['label']}",
        notes,
        f"Bars and lines by severity over all and for each of {', '.join(map(spoken, shifts))}; "
        "a scatter plot of gain against energy reduction.",
    )


def _both(
    values: Rows,
    severities: list[int],
    domains: Sequence[Any],
    ends: tuple[bool, bool],
    title: Any,
    *,
    small: bool = False,
) -> Any:
    """Bars of the gain on the left axis, a line of the energy reduction on the right; the same scales everywhere."""
    alt = altair()
    titles = (None, None, None) if small else ("accuracy gain (points)", "energy reduction (nats)", "severity")
    base = {
        "x": alt.X("severity:O", title=titles[2]).scale(domain=severities).axis(labelAngle=0),
        "tip": "severity:O, gain_points:Q .2f, energy_reduction:Q .3f",
    }
    gain = alt.Y("gain_points:Q").scale(domain=domains[0], nice=False)
    fall = alt.Y("energy_reduction:Q").scale(domain=domains[1], nice=False)
    gain = gain.axis(title=titles[0], titleColor="#8a6100", tickCount=4, labels=ends[0])
    fall = fall.axis(title=titles[1], titleColor=REDUCTION, tickCount=4, labels=ends[1], orient="right", grid=False)
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


CHARTS = (
    Chart("energy-error", "shift", _error_tables, _error_chart),
    Chart("energy-steps", "step", _step_tables, _step_chart),
    Chart("energy-severity", "point", _severity_tables, _severity_chart),
)
