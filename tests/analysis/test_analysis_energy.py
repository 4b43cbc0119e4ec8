"""Energy against errors, steps and severity: every number against a bare loop, numpy or scipy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grids import digits, grid, model, softmax, stored
from scipy.special import logsumexp
from scipy.stats import spearmanr

import steep
from steep.analysis import ANALYSES, cells
from steep.analysis.energy import EnergyError, EnergySeverity, EnergySteps, groups, spearman
from steep.errors import InputError


def test_groups_are_those_counted_by_hand(tmp_path: Path) -> None:
    cells = grid("analyze-digits", "method=source", "shift=fog,clean", "severity=0,5")
    rows = EnergyError().rows(stored("energy-error", cells, tmp_path, width=0.005))
    assert {(row["shift"], row["severity"]) for row in rows} == {("fog", 5), ("clean", 0)}
    x, y = digits("fog", 5)
    with torch.no_grad():
        logits = model()(x).double().numpy()
    e = -logsumexp(logits, axis=1)
    wrong = logits.argmax(1) != y.numpy()
    groups = [row for row in rows if row["part"] == "group" and row["shift"] == "fog"]
    assert len(groups) > 2
    for group in groups:
        inside = (e >= group["energy_low"]) & (e < group["energy_high"])
        assert (group["n"], group["wrong"]) == (inside.sum(), wrong[inside].sum())
    assert sum(group["n"] for group in groups) == 60
    (point,) = (row for row in rows if row["part"] == "shift" and row["shift"] == "fog")
    assert point["energy"] == pytest.approx(e.mean(), rel=1e-6)
    assert point["loss"] == pytest.approx(-np.log(softmax(logits)[np.arange(60), y.numpy()]).mean(), rel=1e-5)
    assert point["error"] == pytest.approx(wrong.mean())


def test_answers_that_are_not_finite_fall_into_no_group() -> None:
    logits = torch.tensor([[1.0, 0.0], [math.nan, 0.0], [3.0, math.inf]])
    assert sum(group["n"] for group in groups(logits, torch.zeros(3).long(), 1.0)) == 1
    with pytest.raises(InputError, match="width"):
        cells.resolve(ANALYSES["energy-error"], {"width": 0.0})


@pytest.mark.parametrize("method", ["tent", "tea"])
def test_a_step_is_what_an_adapter_of_so_many_steps_answers(method: str, tmp_path: Path) -> None:
    cells = grid("analyze-digits", f"method={method}", "shift=fog", "severity=5", sets=("steps=2",))
    rows = EnergySteps().rows(stored("energy-steps", cells, tmp_path))
    assert [row["step"] for row in rows] == [0, 1, 2]
    x, y = digits("fog", 5)
    hyper = dict(cells[0].hyper)
    for row in rows[1:]:
        adapter = steep.adapt(model(), method, steps=row["step"], episodic=True, predict="after", guard="off", **hyper)
        logits = torch.cat([adapter(x[i : i + 30]) for i in (0, 30)]).double().numpy()
        assert row["energy"] == pytest.approx(-logsumexp(logits, axis=1).mean(), rel=1e-5)
        assert row["loss"] == pytest.approx(-np.log(softmax(logits)[np.arange(60), y.numpy()]).mean(), rel=1e-4)
        assert row["accuracy"] == pytest.approx((logits.argmax(1) == y.numpy()).mean())
    adapter = steep.adapt(model(), method, episodic=True, predict="before", guard="off", **hyper)
    before = torch.cat([adapter(x[i : i + 30]) for i in (0, 30)]).double().numpy()
    assert rows[0]["energy"] == pytest.approx(-logsumexp(before, axis=1).mean(), rel=1e-5)


def test_the_source_model_takes_no_step(tmp_path: Path) -> None:
    cells = grid("analyze-digits", "method=source", "shift=fog", "severity=5", sets=("steps=3",))
    rows = EnergySteps().rows(stored("energy-steps", cells, tmp_path))
    assert [row["step"] for row in rows] == [0]
    assert "after 0 steps" in EnergySteps().summary(rows)[0]


def bench_row(method: str, shift: str, severity: int, **values: Any) -> dict[str, Any]:
    spec = {"data": "cifar10-c", "shift": shift, "severity": severity, "model": "wrn-40-2", "method": method}
    spec |= {"weights": "w", "setting": "paper", "seed": 0, "protocol": "reset", "batch_size": 200, "label": method}
    env = {"commit": "c0ffee", "device": "cpu", "versions": {"steep": "1"}}
    return {"key": f"{method}{shift}{severity}", "spec": spec, "n": 10, "env": env, "finished": "2024-06-17", **values}


def severity_rows(*, seed: int = 0, sources: bool = True) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    rows = []
    for shift in ("fog", "snow"):
        for severity in (1, 2, 3, 4, 5):
            base, gain = draw.uniform(0.2, 0.5), round(float(draw.uniform(0, 0.4)), 1)  # rounded: there are ties
            before, after = draw.normal(size=2)
            if sources:
                rows.append(bench_row("source", shift, severity, accuracy=base, energy_before=0.0, energy_after=0.0))
            numbers = {"accuracy": base + gain, "energy_before": float(before), "energy_after": float(after)}
            rows.append(bench_row("tea", shift, severity, **numbers))
    return rows


def test_gain_reduction_and_their_rank_correlation() -> None:
    stored = severity_rows()
    rows = EnergySeverity().rows(stored)
    points = [row for row in rows if row["part"] == "point"]
    tea = [row for row in stored if row["spec"]["method"] == "tea"]
    source = [row["accuracy"] for row in stored if row["spec"]["method"] == "source"]
    reduction = np.array([row["energy_before"] - row["energy_after"] for row in tea])
    gain = np.array([row["accuracy"] for row in tea]) - source
    assert [row["energy_reduction"] for row in points] == pytest.approx(list(reduction))
    assert [row["gain"] for row in points] == pytest.approx(list(gain))
    ranks = {row["shift"]: row for row in rows if row["part"] == "correlation"}
    assert ranks["all"]["spearman"] == pytest.approx(spearmanr(reduction, gain).statistic)
    assert ranks["fog"]["spearman"] == pytest.approx(spearmanr(reduction[:5], gain[:5]).statistic)
    assert (ranks["all"]["pairs"], ranks["snow"]["pairs"]) == (10, 5)
    summary = EnergySeverity().summary(rows)
    assert summary[0].startswith("tea, all shifts: rank correlation of energy reduction and accuracy gain")
    assert f"{spearmanr(reduction, gain).statistic:.2f} over 10 points" in summary[0]
    for row in rows:
        assert (row["analysis"], row["version"], row["commit"], row["device"]) == (
            "energy-severity",
            1,
            "c0ffee",
            "cpu",
        )


def test_a_rank_correlation_is_of_one_data_set() -> None:
    other = [{**row, "spec": {**row["spec"], "data": "mnist"}} for row in severity_rows(seed=1)]
    alone = [EnergySeverity().rows(rows) for rows in (severity_rows(), other)]
    both = EnergySeverity().rows([*severity_rows(), *other])

    def ranks(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
        return {(row["data"], row["shift"]): row["spearman"] for row in rows if row["part"] == "correlation"}

    assert ranks(both) == ranks(alone[0]) | ranks(alone[1])
    assert len(set(ranks(both).values())) > 3
    summary = EnergySeverity().summary(both)
    assert summary[0].startswith("tea on cifar10-c, wrn-40-2, all shifts")
    assert "over 10 points" in summary[0]
    assert any(line.startswith("tea on mnist, wrn-40-2, all shifts") for line in summary)


def test_without_a_source_model_there_is_no_gain_rather_than_a_wrong_one() -> None:
    rows = EnergySeverity().rows(severity_rows(sources=False))
    assert all(row["gain"] is None for row in rows if row["part"] == "point")
    assert all(math.isnan(row["spearman"]) for row in rows if row["part"] == "correlation")
    assert "10 cells have no source model on the same images" in EnergySeverity().summary(rows)[-1]
    half = EnergySeverity().rows([row for row in severity_rows() if row["key"] != "sourcefog3"])
    assert [row["pairs"] for row in half if row["part"] == "correlation"] == [9, 4, 5]


def test_spearman_is_scipys_with_ties() -> None:
    draw = np.random.default_rng(0)
    for n in (3, 8, 50):
        a, b = draw.integers(0, 6, n).astype(float), draw.normal(size=n)
        assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman([1, 2, 3], [2, 4, 8]) == 1.0
    for a, b in (([], []), ([1, 2], [1, 2]), ([1, 1, 1], [1, 2, 3]), ([1, 2, math.nan], [1, 2, 3])):
        assert math.isnan(spearman(a, b))


def test_every_analysis_says_what_it_is_and_has_a_recipe() -> None:
    from steep.report.charts import CHARTS

    assert set(CHARTS) == {*ANALYSES, "stream"}
    assert all(analysis.recipe.startswith("analyze-") for analysis in ANALYSES.values())
