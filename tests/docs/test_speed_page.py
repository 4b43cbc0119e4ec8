"""docs/speed.md shows its stored rows, and the setting that the search chose is the one that is there."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

import steep

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import speed_page


def test_the_page_is_what_the_rows_make_it():
    page = speed_page.PAGE.read_text(encoding="utf-8")
    assert speed_page.written(page) == page


def test_tea_fast_is_the_best_of_the_search_and_the_cheapest_of_those_level():
    scores, spec = defaultdict(list), {}
    for line in (speed_page.HOME / "results/search-tea-fast.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["spec"]["method"] == "tea":
            assert row["spec"]["shift"] in ("speckle_noise", "gaussian_blur", "spatter", "saturate")
            scores[row["spec"]["label"]].append(round(row["accuracy"] * row["n"]))
            spec[row["spec"]["label"]] = row["spec"]["hyper"]
    best = max(map(sum, scores.values()))
    level = [spec[label] for label, right in scores.items() if sum(right) == best]
    chosen = min(level, key=lambda hyper: hyper["sgld_steps"] * hyper["chains"])
    fast = steep.METHODS["tea-fast"]()
    assert {name: chosen[name] for name in ("sgld_steps", "sgld_rate", "chains", "restart", "buffer_size")} == {
        name: getattr(fast, name) for name in ("sgld_steps", "sgld_rate", "chains", "restart", "buffer_size")
    }


def test_the_accuracies_are_the_means_of_the_rows():
    rows = [json.loads(line) for line in (speed_page.HOME / "results/tea-fast-h200.jsonl").read_text().splitlines()]
    for seed in (0, 1, 2):
        of_method = [
            row["accuracy"]
            for row in rows
            if row["spec"]["method"] == "tea-fast" and row["spec"]["seed"] == seed and row["spec"]["shift"] != "clean"
        ]
        assert len(of_method) == 15
        assert f"{100 * mean(of_method):.2f}" in speed_page.accuracy()


def test_the_front_holds_what_nothing_beats():
    settings = speed_page.settings()
    front = speed_page.front(settings)
    for row in settings:
        beaten = any(o["cost"] <= row["cost"] and o["accuracy"] > row["accuracy"] for o in settings)
        beaten |= any(o["cost"] < row["cost"] and o["accuracy"] >= row["accuracy"] for o in settings)
        assert beaten or any((f["cost"], f["accuracy"]) == (row["cost"], row["accuracy"]) for f in front)


@pytest.mark.parametrize(
    ("method", "half", "full", "line"),
    [("tea", "cifar10-c-2000-h200", "cifar10-c-tf32-2000-h200", -2), ("tea-fast", "wrn-40-2-cpu", "wrn-40-2-cpu", -1)],
)
def test_precisions_are_compared_on_the_same_sets(method: str, half: str, full: str, line: int) -> None:
    means, sets = [], []
    for file, precisions in ((half, ["bfloat16"]), (full, ["tf32", "float32"])):
        lines = (speed_page.HOME / f"results/{file}.jsonl").read_text(encoding="utf-8").splitlines()
        of_method = [r for r in map(json.loads, lines) if r["spec"]["method"] == method and r["spec"]["severity"] == 5]
        of_method = [r for r in of_method if r["env"]["precision"] in precisions]
        assert len({r["spec"]["shift"] for r in of_method}) == len(of_method) == 15
        sets.append({(r["spec"]["shift"], r["data"][0]["sha256"], r["spec"]["weights_sha256"]) for r in of_method})
        means.append(100 * mean(r["accuracy"] for r in of_method))
    assert sets[0] == sets[1]
    cells = [cell.strip() for cell in speed_page.precisions().splitlines()[line].split("|")]
    assert (cells[4], cells[5].split()[1]) == tuple(f"{value:.2f}" for value in means)
    assert abs(means[0] - means[1]) < 0.15
