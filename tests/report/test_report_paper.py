"""The paper's figures: complete, and consistent with each other as far as rounding lets them be."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from steep import recipes
from steep.bench.recipe import plan
from steep.methods import METHODS
from steep.report.paper import as_in_paper, benchmark, figure

BLOCKS: list[dict[str, Any]] = recipes.paper()["block"]
# The paper prints 56.18 for TEA on CIFAR-100-C; the errors it prints give 56.07. Kept as printed.
EXCUSED = {("cifar100-c", "tea"): 0.12}
APPENDIX = [block for block in BLOCKS if block["table"] == "Appendix table"]
SRC = Path(__file__).parents[2] / "src"


def test_every_table_is_there() -> None:
    count = {
        name: sum(len(b["columns"]) * len(b["methods"]) for b in BLOCKS if b["table"] == name)
        for name in ("Table 1", "Table 2", "Table 3", "Appendix table")
    }
    assert count == {
        "Table 1": 10 * 15,
        "Table 2": 8 * 6,
        "Table 3": 4 * 7 * 4,  # without the diagonal
        "Appendix table": (10 + 9 + 9) * 17,
    }
    for block in BLOCKS:
        assert set(block["methods"]) <= set(METHODS)
        for values in block["methods"].values():
            assert len(values) == len(block["columns"])
            assert all(math.isnan(v) or 0 <= v <= 110 for v in values)


def test_only_dua_lacks_figures() -> None:
    lacking = {m for block in BLOCKS for m, values in block["methods"].items() if any(map(math.isnan, values))}
    assert lacking == {"dua"}


@pytest.mark.parametrize("block", APPENDIX, ids=lambda block: block["data"])
def test_appendix_means_and_mce_follow_from_its_corruptions(block: dict[str, Any]) -> None:
    source = block["methods"]["source"]
    for method, values in block["methods"].items():
        average = statistics.fmean(values[:15])
        mce = 100 * statistics.fmean((100 - v) / (100 - s) for v, s in zip(values[:15], source[:15], strict=True))
        assert values[15] == pytest.approx(average, abs=0.03), method
        assert values[16] == pytest.approx(mce, abs=EXCUSED.get((block["data"], method), 0.05)), method


def test_tables_that_give_the_same_figure_agree() -> None:
    for block in APPENDIX:
        for method, values in block["methods"].items():
            for column, value in (("mean", values[15]), ("mce", values[16])):
                first = figure(method, column, data=block["data"], model="wrn-28-10", severities=[5])
                assert first == pytest.approx(value, abs=0.011)  # 83.34 and 83.33 for TEA


def test_pacs_means_follow_from_its_targets() -> None:
    for block in (block for block in BLOCKS if block["table"] == "Table 3"):
        assert block["source"] not in block["columns"]
        for method, values in block["methods"].items():
            assert values[3] == pytest.approx(statistics.fmean(values[:3]), abs=0.02), (block["source"], method)


def test_figures_are_found_by_what_they_are_of() -> None:
    assert benchmark()[:2] == ("gaussian_noise", "shot_noise")
    assert figure("source", "clean", data="cifar10-c", model="wrn-28-10") == 94.77
    assert figure("tent", "mean", data="cifar100-c", model="wrn-28-10", severities=[1, 2, 3, 4, 5]) == 69.47
    assert figure("sar", "mce", data="tiny-imagenet-c", model="resnet-50-gn", severities=range(1, 6)) == 99.41
    assert figure("shot", "photo", data="pacs", model="resnet-18-bn", source="sketch", severities=[0]) == 19.76
    assert figure("dua", "clean", data="cifar10-c", model="wrn-28-10") is None
    assert figure("tea", "mean", data="cifar10-c", model="wrn-28-10", severities=[3]) is None
    assert figure("bn", "mean", data="cifar10-c", model="resnet-50-gn", severities=range(1, 6)) is None


def test_hyper_parameters_of_every_set() -> None:
    hyper = recipes.paper()["hyper"]
    assert set(hyper) == {"cifar10-c", "cifar100-c", "tiny-imagenet-c", "pacs"}
    assert hyper["tiny-imagenet-c"]["batch_size"] == 1000
    assert {name: (h["steps"], h["lr"]) for name, h in hyper["pacs"].items()} == {
        "photo": (10, 0.001),
        "art_painting": (10, 0.001),
        "cartoon": (10, 0.002),
        "sketch": (20, 0.002),
    }


@pytest.mark.parametrize(
    "name", [name for name in recipes.names("bench") if name.startswith(("table", "appendix", "clean"))]
)
def test_the_recipes_of_the_tables_are_runs_the_figures_are_of(name: str) -> None:
    cells = plan(name, only=["setting=paper"], require=False).cells
    assert all(as_in_paper(cell.to_json()) for cell in cells)
    changed = plan(name, only=["setting=paper", "method=tea,tent"], sets=["batch_size=64"], require=False).cells
    assert not any(as_in_paper(cell.to_json()) for cell in changed)


@pytest.mark.parametrize("name", ["batch-size-1", "continual", "mixed", "label-shift", "demo"])
def test_other_streams_have_no_figure(name: str) -> None:
    assert not any(as_in_paper(cell.to_json()) for cell in plan(name, require=False).cells)
