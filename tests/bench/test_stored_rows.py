"""Rows that earlier versions stored are still theirs: every key is the one that the cell has today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.again import shortest_rows
from steep.bench.recipe import stored_hyper
from steep.bench.spec import Cell
from steep.methods import METHODS, make

STORES = sorted((Path(__file__).parents[2] / "results").glob("*.jsonl"))


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_every_stored_row_has_the_key_of_its_cell(path: Path) -> None:
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "key" in row and "data" in row.get("spec", {}) and "method" in row["spec"]:
            assert Cell.from_json(row["spec"]).key() == row["key"]


def test_there_is_a_row_to_run_again_for_every_method_that_was_measured_there() -> None:
    assert set(shortest_rows()) >= {"source", "bn", "dua", "pl", "shot", "tent", "eta", "sar", "tea-fast"}


@pytest.mark.parametrize("path", STORES, ids=lambda path: path.stem)
def test_a_bench_today_looks_for_the_keys_that_are_stored(path: Path) -> None:
    """A hyper-parameter that came later does not enter a row's key while it has its default."""
    for line in path.read_text(encoding="utf-8").splitlines():
        spec = json.loads(line).get("spec", {})
        if spec.get("hyper") and spec.get("method") in METHODS:
            method = make(spec["method"], spec["setting"], **spec["hyper"])
            values = stored_hyper(method, make(spec["method"], spec["setting"]))
            assert values == Cell.from_json(spec).hyper, spec["method"]
