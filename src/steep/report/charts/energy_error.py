"""Error rate by energy, and loss against energy with one point for each shift."""

from __future__ import annotations

from typing import Any

from steep.report.charts.rows import Rows, finite, order, some
from steep.report.charts.style import BLUE, FAMILY_COLOURS, FAMILY_SHAPES, altair, family, finish, spoken

MOST_GROUPS = 16


def tables(rows: Rows) -> dict[str, Rows]:
    """Groups of energy over all shifts together, two merged to one until they are few; and a point for each shift."""
    points = [
        {
            "shift": row["shift"],
            "severity": row["severity"] or 0,
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
    counts: dict[tuple[float, float], list[int]] = {}
    for row in rows:
        if row["part"] == "group":
            both = counts.setdefault((row["energy_low"], row["energy_high"]), [0, 0])
            both[0] += row["n"]
            both[1] += row["wrong"]
    while len(counts) > MOST_GROUPS:
        counts = _halved(counts)
    groups = [
        {"energy_low": low, "energy_high": high, "n": n, "wrong": wrong, "error_percent": 100 * wrong / n}
        for (low, high), (n, wrong) in sorted(counts.items())
    ]
    return {"groups": groups, "shifts": points}


def _halved(counts: dict[tuple[float, float], list[int]]) -> dict[tuple[float, float], list[int]]:
    merged: dict[tuple[float, float], list[int]] = {}
    for (low, high), (n, wrong) in counts.items():
        width = 2 * (high - low)
        start = width * (low // width)
        both = merged.setdefault((start, start + width), [0, 0])
        both[0] += n
        both[1] += wrong
    return merged


def chart(rows: Rows) -> Any:
    """Bars on the left, points on the right."""
    alt = altair()
    records = tables(rows)
    every = some(rows, "energy-error", "shift")
    label = every[0]["label"]
    bars = (
        alt.Chart(alt.Data(values=records["groups"]))
        .mark_rect(color=BLUE, stroke="white")
        .encode(
            x=alt.X("energy_low:Q", title="energy group (nats; low: the model finds the image likely)").scale(
                zero=False
            ),
            x2="energy_high:Q",
            y=alt.Y("error_percent:Q", title="error rate (%)", scale=alt.Scale(domain=[0, 100])),
            y2=alt.datum(0),
            tooltip=["energy_low:Q", "energy_high:Q", "n:Q", "wrong:Q", alt.Tooltip("error_percent:Q", format=".1f")],
        )
        .properties(
            title=f"Error rate by energy, {sum(g['n'] for g in records['groups']):,} images", width=300, height=260
        )
    )
    counts = (
        alt.Chart(alt.Data(values=records["groups"]))
        .transform_calculate(middle="(datum.energy_low + datum.energy_high) / 2")
        .mark_text(dy=-6, fontSize=9, color="#57606a")
        .encode(x="middle:Q", y="error_percent:Q", text=alt.Text("n:Q", format=".2~s"))
    )
    families = [name for name in FAMILY_COLOURS if any(p["family"] == name for p in records["shifts"])]
    points = (
        alt.Chart(alt.Data(values=records["shifts"]))
        .mark_point(size=75, stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X("energy:Q", title="mean energy (nats)").scale(zero=False),
            y=alt.Y("loss:Q", title="mean loss (cross-entropy, nats)"),
            color=alt.Color(
                "family:N", scale=alt.Scale(domain=families, range=[FAMILY_COLOURS[f] for f in families]), title="shift"
            ),
            shape=alt.Shape(
                "family:N", scale=alt.Scale(domain=families, range=[FAMILY_SHAPES[f] for f in families]), title="shift"
            ),
            opacity=alt.Opacity("strength:Q", title="severity", scale=alt.Scale(domain=[1, 5], range=[0.3, 1])).legend(
                values=[1, 2, 3, 4, 5], symbolFillColor="#444444", symbolStrokeColor="#444444"
            ),
            tooltip=["shift:N", "severity:Q", "energy:Q", "loss:Q", alt.Tooltip("error_percent:Q", format=".1f")],
        )
        .properties(title="Loss against energy, one point for each shift", width=300, height=260)
    )
    gone = len(every) - len(records["shifts"])
    notes = ["over each bar: its images"] + (
        [f"{gone} shifts with answers that are not finite are not drawn"] if gone else []
    )
    names = ", ".join(spoken(name) for name in order({p["shift"] for p in records["shifts"]}))
    return finish(
        alt.hconcat(alt.layer(bars, counts), points, spacing=36),
        every,
        f"Energy and errors: {label}",
        notes,
        f"Left: error rate in groups of equal width in energy. Right: mean loss against mean energy for {names}.",
    )
