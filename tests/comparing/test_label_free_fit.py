"""The fit of the label-free estimate: on made-up rows whose law is known, and on the committed ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import label_free_fit as fit
from steep.comparing.estimate import SIGNS, estimated_gain, fitted

HOME = Path(__file__).parents[2]
TRUE = np.array([-0.4, 0.8, 1.5, -0.5])
EXTRA = {"speckle_noise", "gaussian_blur", "spatter", "saturate"}  # of no benchmark


def made_rows(n: int, seed: int, noise: float = 0.1) -> list[fit.Row]:
    """Rows of a made-up law: gain = TRUE · differences + noise · √changed · a normal number."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        difference, changed = draw.normal(size=4) * 0.05, draw.uniform(0.2, 0.9)
        gain = float(np.clip(difference @ TRUE + noise * np.sqrt(changed) * draw.normal(), -changed, changed))
        signs = dict(zip(SIGNS, 0.5 + difference, strict=True))
        before = dict.fromkeys(SIGNS, 0.5)
        rows.append(
            {
                "model": str(draw.choice(["one", "two", "three"])), "data": "made", "changed": changed,
                "accuracy_source": 0.5, "accuracy": 0.5 + gain, "signs_source": before, "signs": signs,
            }
        )  # fmt: skip
    return rows


def test_weights_of_a_known_law_are_recovered() -> None:
    assert fit.weights(made_rows(2000, 0, noise=0.02)) == pytest.approx(TRUE, abs=0.1)


def test_the_interval_covers_rows_it_has_not_seen() -> None:
    rows, fresh = made_rows(400, 1), made_rows(2000, 2)
    weights, width = fit.weights(rows), fit.interval(rows)
    assert width == pytest.approx(1.645 * 0.1, rel=0.15)  # of a normal distribution
    miss = np.abs(fit.estimates(fresh, weights) - fit.gains(fresh))
    assert 0.87 < np.mean(miss <= width * np.sqrt(fit.changed(fresh))) < 0.94


def test_harmful_cases_that_look_helpful_widen_the_interval() -> None:
    rows = made_rows(400, 3)
    for row in [row for row in rows if row["accuracy"] < 0.5][:30]:  # they look as good as can be
        row["signs"] = {**row["signs"], "variety": 0.9}
    guess, root, truth = fit.left_out(rows, fit.source), np.sqrt(fit.changed(rows)), fit.gains(rows)
    wrong = (guess - fit.interval(rows) * root > 0)[truth < 0]
    assert wrong.mean() <= 0.05


def test_the_shipped_numbers_are_those_of_the_committed_rows() -> None:
    table = fitted()
    rows = [row for row in fit.read([HOME / "results" / name for name in table["rows"]]) if row["part"] == "fit"]
    assert [table["gain"][name] for name in SIGNS] == pytest.approx(fit.weights(rows), abs=6e-4)
    assert table["interval"] == pytest.approx(fit.interval(rows), abs=6e-4)
    assert {shift for row in rows for shift, _ in row["shifts"]} <= {*EXTRA, "clean"}


def test_few_harmful_cases_are_called_helping_where_nothing_was_fitted() -> None:
    rows = [row for row in fit.read([HOME / "results" / name for name in fitted()["rows"]]) if row["part"] == "check"]
    verdicts = [estimated_gain(row["signs_source"], row["signs"], row["changed"]).verdict for row in rows]
    harmful = [verdict for verdict, gain in zip(verdicts, fit.gains(rows), strict=True) if gain < 0]
    assert len(harmful) >= 30
    assert harmful.count("helping") <= 0.05 * len(harmful)
