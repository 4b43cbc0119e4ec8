"""Calibration and sensitivity from bench rows; the packaged recipes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grids import digits, grid, model, softmax, stored
from torchmetrics.functional.classification import multiclass_calibration_error

import steep
from steep import recipes
from steep.analysis import ANALYSES
from steep.analysis.calibration import Calibration
from steep.analysis.sensitivity import Sensitivity
from steep.bench.recipe import plan
from steep.errors import InputError

COUNTS = {
    "analyze-calibration": 4,
    "analyze-digits": 104,  # (5 corruptions × 5 severities + clean) × 4 methods
    "analyze-digits-sensitivity": 70,
    "analyze-energy-error": 76,
    "analyze-energy-severity": 150,
    "analyze-energy-steps": 45,
    "analyze-samples-cifar10": 3,
    "analyze-samples-digits": 6,
    "analyze-samples-mnist": 3,
    "analyze-samples-mnist-rotated": 3,
    "analyze-samples-pacs": 9,
    "analyze-sensitivity": 390,  # 15 × (source + tea + 24 variants)
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_recipe_resolves_to_its_cells(name: str) -> None:
    planned = plan(name, require=False)
    assert len({cell.key() for cell in planned.cells}) == len(planned.cells) == COUNTS[name]
    for cell in planned.cells:
        assert recipes.read(planned.train[cell.weights])["model"] == cell.model
    assert cell.protocol == "reset"


def test_the_recipes_are_these_and_each_analysis_has_one() -> None:
    assert {name for name in recipes.names("bench") if name.startswith("analyze-")} == set(COUNTS)
    assert {analysis.recipe for analysis in ANALYSES.values()} <= set(COUNTS)


def test_pacs_is_sampled_on_the_domain_it_was_trained_on_too() -> None:
    cells = plan("analyze-samples-pacs", require=False, own_domain=ANALYSES["samples"].own_domain).cells
    assert {cell.shift for cell in cells} == {"photo", "art_painting", "cartoon", "sketch"}
    assert {cell.source for cell in cells} == {"art_painting"}
    assert len(cells) == 12


def test_calibration_is_pooled_over_all_shifts(tmp_path: Path) -> None:
    cells = grid("analyze-digits", "method=source,tent", "shift=fog,contrast", "severity=5")
    rows = Calibration().rows(stored("calibration", cells, tmp_path))
    for method in ("source", "tent"):
        logits, labels = [], []
        for shift in ("contrast", "fog"):
            x, y = digits(shift, 5)
            adapter = steep.adapt(model(), method, guard="off")
            logits += [adapter(x[i : i + 30]) for i in (0, 30)]
            labels.append(y)
        whole, truth = torch.cat(logits), torch.cat(labels)
        p = softmax(whole.double().numpy())
        confidence, right = p.max(1), p.argmax(1) == truth.numpy()
        (errors,) = (row for row in rows if row["part"] == "errors" and row["label"] == method)
        for name, norm in (("ece", "l1"), ("mce", "max")):
            theirs = multiclass_calibration_error(whole.softmax(1), truth, 10, n_bins=15, norm=norm)  # type: ignore[arg-type]
            assert errors[name] == pytest.approx(float(theirs), abs=1e-5)
        assert errors["accuracy"] == pytest.approx(right.mean())
        picked = p[np.arange(120), truth.numpy()]
        assert errors["nll"] == pytest.approx(-np.log(picked).mean(), rel=1e-5)
        assert errors["brier"] == pytest.approx((p**2).sum(1).mean() - 2 * picked.mean() + 1, rel=1e-5)
        assert (errors["n"], errors["shifts"]) == (120, 2)
        bins = [row for row in rows if row["part"] == "bin" and row["label"] == method]
        assert len(bins) == 10
        for row in bins:
            inside = (confidence >= row["low"]) & (confidence < row["high"])
            assert row["n"] == inside.sum()
            if row["n"]:
                assert row["confidence"] == pytest.approx(confidence[inside].mean(), rel=1e-5)
                assert row["accuracy"] == pytest.approx(right[inside].mean())
            else:
                assert row["confidence"] is row["accuracy"] is None
    assert "ECE" in Calibration().summary(rows)[0]


def test_answers_that_are_not_finite_make_nan_not_a_number() -> None:
    spec = {"data": "d", "shift": "fog", "severity": 5, "method": "pl", "label": "pl", "seed": 0}
    row: dict[str, Any] = {"spec": spec, "n": 4, "accuracy": 0.25, "brier": math.nan, "nll": math.nan, "nonfinite": 3}
    rows = Calibration().rows([{**row, "reliability": None, "calibration": None}])
    assert len(rows) == 1
    assert math.isnan(rows[0]["ece"])
    assert rows[0]["accuracy"] == 0.25
    assert "3 answers are not finite" in Calibration().summary(rows)[0]


def sensitivity_row(label: str, shift: str, accuracy: float, **changed: Any) -> dict[str, Any]:
    hyper = {"lr": 0.001, "sgld_rate": 0.1, "chains": None}
    run = {"batch_size": 200, "steps": 1}
    hyper |= {k: v for k, v in changed.items() if k in hyper}
    run |= {k: v for k, v in changed.items() if k in run}
    method = "source" if label == "source" else "tea"
    spec = {"data": "d", "shift": shift, "severity": 5, "model": "m", "method": method, "label": label, "seed": 0}
    return {"spec": {**spec, "hyper": {} if method == "source" else hyper, **run}, "n": 10, "accuracy": accuracy}


def sensitivity_rows() -> list[dict[str, Any]]:
    rows = []
    for i, shift in enumerate(("fog", "snow")):
        rows += [
            sensitivity_row("source", shift, 0.1),
            sensitivity_row("tea", shift, 0.5 + i / 10),
            sensitivity_row("rate-0.4", shift, 0.4 + i / 10, sgld_rate=0.4),
            sensitivity_row("rate-0.001", shift, 0.3 + i / 10, sgld_rate=0.001),
            sensitivity_row("batch-50", shift, 0.2, batch_size=50),
            sensitivity_row("chains-10", shift, 0.6, chains=10),
            sensitivity_row("two-things", shift, 0.9, sgld_rate=0.4, lr=0.1),
        ]
    return rows


def test_what_a_variant_varies_is_found_and_the_usual_value_is_on_every_line() -> None:
    rows = Sensitivity().rows(sensitivity_rows())
    points = {
        (r["parameter"], r["value"], r["shift"]): (r["accuracy"], r["usual"]) for r in rows if r["part"] == "point"
    }
    assert points == {
        ("sgld_rate", 0.4, "fog"): (0.4, False),
        ("sgld_rate", 0.4, "snow"): (0.5, False),
        ("sgld_rate", 0.001, "fog"): (0.3, False),
        ("sgld_rate", 0.001, "snow"): (0.4, False),
        ("sgld_rate", 0.1, "fog"): (0.5, True),
        ("sgld_rate", 0.1, "snow"): (0.6, True),
        ("batch_size", 50, "fog"): (0.2, False),
        ("batch_size", 50, "snow"): (0.2, False),
        ("batch_size", 200, "fog"): (0.5, True),
        ("batch_size", 200, "snow"): (0.6, True),
        ("chains", 10, "fog"): (0.6, False),
        ("chains", 10, "snow"): (0.6, False),
        ("chains", 200, "fog"): (0.5, True),  # None: as many as images
        ("chains", 200, "snow"): (0.6, True),
    }
    assert "sgld_rate: best 55.00% at 0.1, worst 35.00% at 0.001, usual 55.00% at 0.1" in Sensitivity().summary(rows)
    half = Sensitivity().rows([row for row in sensitivity_rows() if row["accuracy"] != 0.3])
    assert "sgld_rate: not run for every shift, so left out: 0.001" in Sensitivity().summary(half)


def test_variants_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="expected a line named tea"):
        Sensitivity().rows([sensitivity_row("rate-0.4", "fog", 0.4, sgld_rate=0.4)])
