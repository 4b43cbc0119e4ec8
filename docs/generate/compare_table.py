"""How right the label-free estimate of `steep.compare` is: tables and a picture from stored rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import altair as alt
import numpy as np

HOME = Path(__file__).parents[2]
sys.path.insert(0, str(HOME))

from benchmarks import label_free_fit as fit  # noqa: E402
from steep.comparing.estimate import HARMING, HELPING, SIGNS, Estimate, estimated_gain, fitted  # noqa: E402

MEANING = {
    "doubt": "entropy of an answer",
    "steadiness": "share of images that get the same class as their mirror image (or shifted image)",
    "variety": "entropy of the mean answer over the whole stream",
    "batch_variety": "entropy of the mean answer of a batch",
}


@cache
def rows() -> list[fit.Row]:
    """Read the rows that the shipped estimate names."""
    return fit.read([HOME / "results" / name for name in fitted()["rows"]])


def estimate(row: fit.Row) -> Estimate:
    """Estimate a row's gain as `steep.compare` does."""
    return estimated_gain(row["signs_source"], row["signs"], row["changed"])


def weights() -> str:
    """The fitted formula."""
    lines = ["| sign | what it is | weight |", "|---|---|---:|"]
    lines += [f"| {name.replace('_', ' ')} | {MEANING[name]} | {fitted()['gain'][name]:+.2f} |" for name in SIGNS]
    return "\n".join(lines).replace("-", "−").replace("|−−−|−−−|−−−:|", "|---|---|---:|")


def protocols() -> str:
    """The corruptions it was not fitted on, by protocol, and all together."""
    unseen = [row for row in rows() if row["part"] == "check"]
    lines = [
        "| stream | cases | size of the gain | mean error | in the interval | right | cannot tell | wrong | harmful, "
        "called helping |",
        "|---|" + "---:|" * 8,
    ]
    by_name = {
        name: [row for row in unseen if row["protocol"] == name] for name in sorted({r["protocol"] for r in unseen})
    }
    lines += [f"| {name} | {_cells(some)} |" for name, some in {**by_name, "all": unseen}.items()]
    return "\n".join(lines)


def sources() -> str:
    """Models and data sets: each estimated by a fit to the others alone."""
    lines = [
        "| left out of the fit | cases | size of the gain | mean error | mean error of the source model's accuracy |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in sorted({fit.source(row) for row in rows()}):
        inside = [row for row in rows() if fit.source(row) == name]
        others = [row for row in rows() if fit.source(row) != name and row["part"] == "fit"]
        truth = 100 * fit.gains(inside)
        error = np.abs(100 * fit.estimates(inside, fit.weights(others)) - truth)
        accuracy = np.clip(fit.with_constant(inside, "signs_source") @ fit.accuracy_weights(others), 0, 1)
        off = 100 * np.abs(accuracy - np.array([row["accuracy_source"] for row in inside]))
        cells = [f"{values.mean():.1f}" for values in (np.abs(truth), error, off)]
        lines.append(f"| {name} | {len(inside)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(some: Sequence[fit.Row]) -> str:
    truth, made = 100 * fit.gains(some), [estimate(row) for row in some]
    gain, low, high = np.array(made).T
    sides = np.array([{HELPING: 1, HARMING: -1}.get(each.verdict, 0) for each in made])
    right, harmful = (sides != 0) & (sides == np.sign(truth)), truth < 0
    shares = [(low - 1e-9 <= truth) & (truth <= high + 1e-9), right, sides == 0, (sides != 0) & ~right]
    numbers = [f"{len(some)}", f"{np.abs(truth).mean():.1f}", f"{np.abs(gain - truth).mean():.1f}"]
    numbers += [f"{100 * share.mean():.0f} %" for share in shares]
    return " | ".join([*numbers, f"{(sides[harmful] == 1).sum()} of {harmful.sum()}"])


def picture() -> alt.Chart:
    """Estimated against true gain: above what it was fitted to, below what it was not."""
    points = [
        {
            "estimated": estimate(row).gain,
            "true": 100 * (row["accuracy"] - row["accuracy_source"]),
            "verdict": estimate(row).verdict,
            "part": "fitted: four extra corruptions" if row["part"] == "fit" else "not fitted: the 15 of the benchmark",
        }
        for row in rows()
    ]
    ends = [min(p["true"] for p in points), max(p["true"] for p in points)]
    line = alt.Chart(alt.Data(values=[{"x": end, "y": end} for end in ends])).mark_line(color="#999", strokeDash=[4, 3])
    dots = alt.Chart().mark_circle(size=45, opacity=0.6).encode(
        x=alt.X("estimated:Q", title="estimated gain, points"),
        y=alt.Y("true:Q", title="true gain, points"),
        color=alt.Color(
            "verdict:N",
            scale=alt.Scale(domain=["helping", "harming", "cannot tell"], range=["#1b7837", "#b2182b", "#999999"]),
            legend=alt.Legend(orient="top", title=None, labelFontSize=14),
        ),
    )  # fmt: skip
    panels = [
        alt.layer(
            line.encode(x="x:Q", y="y:Q"), dots.transform_filter(alt.datum.part == part), data=alt.Data(values=points)
        ).properties(width=360, height=260, title=part)
        for part in sorted({point["part"] for point in points})
    ]
    return alt.vconcat(*panels)
