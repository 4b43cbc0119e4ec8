"""Error rate by energy, and loss against energy with one point for each shift."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, some
from steep.report.charts.style import BLUE, altair, by_family, family, finish, plot, spoken
from steep.report.paper import in_order

MOST_GROUPS = 12


def tables(rows: Rows) -> dict[str, Rows]:
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
        for row in some(rows, "energy-error", "shift")
        if finite(row, "energy", "loss")
    ]
    parts = [(r["energy_low"], r["energy_high"], r["n"], r["wrong"]) for r in rows if r["part"] == "group"]
    while len({part[:2] for part in parts}) > MOST_GROUPS:
        parts = [_wider(*part) for part in parts]
    groups = []
    for low, high in sorted({part[:2] for part in parts}):
        n, wrong = (sum(part[i] for part in parts if part[:2] == (low, high)) for i in (2, 3))
        groups.append(
            {"energy_low": low, "energy_high": high, "n": n, "wrong": wrong, "error_percent": 100 * wrong / n}
        )
    return {"groups": groups, "shifts": points}


def _wider(low: float, high: float, n: int, wrong: int) -> tuple[float, float, int, int]:
    width = 2 * (high - low)
    start = width * (low // width)
    return start, start + width, n, wrong


def chart(rows: Rows, records: dict[str, Rows]) -> Any:
    """Bars above, points below."""
    alt = altair()
    every, groups, shifts = some(rows, "energy-error", "shift"), records["groups"], records["shifts"]
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
    gone = len(every) - len(shifts)
    names = ", ".join(map(spoken, in_order(point["shift"] for point in shifts)))
    return finish(
        alt.vconcat(alt.layer(bars, counts), points, spacing=28),
        every,
        f"Energy and errors: {every[0]['label']}",
        [
            "over each bar: its images",
            f"{gone} shifts with answers that are not finite are not drawn" if gone else "",
        ],
        f"Above: error rate in groups of equal width in energy. Below: mean loss against mean energy for {names}.",
    )
