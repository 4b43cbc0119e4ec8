"""Bench and analyses read what a method declares: its cost, its needs, the values its fields may have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from steep.analysis import ANALYSES
from steep.analysis import cells as analysis_cells
from steep.bench import estimate, streaming
from steep.bench.recipe import plan
from steep.bench.sources import Sources
from steep.bench.store import Store
from steep.data import Batches, load
from steep.errors import InputError
from steep.methods import eata, make


def passes(method: str, *sets: str) -> float:
    only = [f"method={method}", "shift=fog", "setting=paper", "seed=0"]
    return estimate.passes(plan("digits", sets=sets, only=only, require=False).cells[0])


def test_a_dry_run_counts_the_passes_of_a_variant_of_tea_by_its_settings() -> None:
    assert passes("tea", "tea.sgld_steps=20", "tea.chains=none") == 45  # 20 · 2 + 2 + 2, and the answer
    sets, only = ["tea-fast.sgld_steps=20", "tea-fast.chains=none"], ["method=tea-fast", "shift=fog", "seed=0"]
    cell = plan("appendix-cifar10", sets=sets, only=only, require=False).cells[0]
    assert estimate.passes(cell) == 45
    assert estimate.passes(replace(cell, hyper=())) == 4  # 25 of 200 chains: (3 · 2 + 2) / 8 + 2, and the answer
    assert estimate.passes(replace(cell, predict="before", steps=2)) == 88


def test_a_dry_run_knows_which_parameters_move() -> None:
    assert passes("pl") == 3
    assert passes("pl", "pl.params=norm") == 2
    assert passes("source") == passes("bn") == 1


@pytest.mark.parametrize("value", ['["norm", "linear"]', "all", '"layer1"'])
def test_bench_takes_the_values_that_adapt_takes(value: str) -> None:
    (cell,) = plan("digits", sets=[f"tent.params={value}"], only=["method=tent", "shift=fog"], require=False).cells
    params = dict(cell.hyper)["params"]
    assert params == make("tent", params=params).params  # type: ignore[attr-defined]


@pytest.mark.parametrize("wrong", ["tent.params=3", "tent.statistics=test", "tea.grad_clip=-1", "dua.copies=0"])
def test_bench_refuses_what_adapt_refuses(wrong: str) -> None:
    with pytest.raises(InputError, match=wrong.partition("=")[0].partition(".")[2]):
        plan("digits", sets=[wrong], require=False)


def test_an_analysis_gives_eata_the_source_images_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[eata.EataState] = []
    step = eata.Eata.step
    monkeypatch.setattr(eata.Eata, "step", lambda self, state, x: states.append(state) or step(self, state, x))
    sets = ["weights=untrained", "batch_size=30"]
    grid = plan("digits", sets=sets, only=["method=eata", "shift=fog", "setting=paper"], limit=60).cells
    with Store(tmp_path / "cells.jsonl") as store:
        done = analysis_cells.run(ANALYSES["energy-error"], grid, store, sources=Sources(), folder=tmp_path)
        assert not done.failed
        assert store.rows[0]["notes"] == ["source images: digits train, shuffled"]
    assert states
    assert all(state.importance for state in states)
    assert any(float(f.abs().sum()) > 0 for f in states[-1].importance)


def test_images_that_stay_on_the_device_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("digits", limit=64)
    data = replace(
        data, images=np.arange(data.images.size, dtype=np.uint64).astype(np.uint8).reshape(data.images.shape)
    )
    source = Batches((data,), 20, torch.device("cpu"), np.random.default_rng(0).permutation(64))
    kept = list(streaming.resident(source))
    monkeypatch.setattr(streaming, "_RESIDENT", 0)
    assert all(
        torch.equal(x, a) and torch.equal(y, b) for (x, y), (a, b) in zip(kept, streaming.resident(source), strict=True)
    )
    exact = np.float32(data.images[source.order[:20]]) / np.float32(255)
    assert np.array_equal(kept[0][0].permute(0, 2, 3, 1).numpy(), exact)


@pytest.mark.gpu
def test_on_a_gpu_they_are_the_bits_of_the_cpu() -> None:
    data = load("digits", limit=64)
    order = np.arange(64)
    here, there = (Batches((data,), 20, torch.device(place), order) for place in ("cpu", "cuda"))
    for (x, _), (a, _), (b, _) in zip(here, there, streaming.resident(there), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(x, b.cpu())
