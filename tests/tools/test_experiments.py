"""The recipes in experiments/ are read by their path and resolve to their cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from steep import recipes
from steep.bench.recipe import plan
from steep.cli import main

HOME = Path(__file__).parents[2] / "experiments"
COUNTS = {
    "ablation-infuse": 180,  # 15 × 12 lines
    "auto": 360,  # 15 × 24 lines
    "before-after": 165,
    "explain-cifar10": 225,  # 15 × (5 methods + 10 variants)
    "explain-cifar100": 55,  # 5 × (7 methods + 4 variants)
    "explain-cifar100-again": 60,  # 5 × 12 lines
    "explain-gn": 165,  # 15 corruptions × 11 lines
    "explain-gn-again": 60,  # 5 × 12 lines
    "explain-pacs": 24,  # 12 pairs × (source + tea)
    "explain-pacs-again": 120,  # 12 pairs × 10 lines
    "samples": 180,  # 15 × (10 lines + two more seeds of one)
    "samples-rates": 60,  # 5 × 3 methods × 4 rates
    "search-infuse": 68,  # 4 × 17 settings
    "search-tea-fast": 156,  # 4 × 39 settings
}


def test_the_experiments_are_these_and_none_is_in_the_wheel() -> None:
    assert {path.stem for path in HOME.glob("*.toml")} == set(COUNTS)
    assert not set(COUNTS) & set(recipes.names())


@pytest.mark.parametrize("name", COUNTS)
def test_every_experiment_resolves_to_its_cells(name: str) -> None:
    grid = plan(str(HOME / f"{name}.toml"), require=False)
    assert grid.name == name
    assert len({cell.key() for cell in grid.cells}) == len(grid.cells) == COUNTS[name]
    for weights in {cell.weights for cell in grid.cells}:
        assert recipes.read(grid.train[weights])["kind"] == "train"


def test_every_value_of_an_experiment_has_its_source_beside_it() -> None:
    for path in HOME.glob("*.toml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            value = line.partition("=")[2].strip()
            if value and not line.startswith(("#", "kind", "about")) and value != "{}" and "method =" not in line:
                assert "#" in line, f"{path.name}: {line}"


def test_the_command_takes_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(HOME / "explain-gn.toml"), "--dry-run"]) == 0
    assert "165" in capsys.readouterr().out


def test_what_makes_a_variant_is_not_undone_by_the_command() -> None:
    history = plan(str(HOME / "explain-pacs.toml"), only=["method=tea-history", "source=photo"], sets=["steps=2"],
                   require=False)  # fmt: skip
    assert {cell.steps for cell in history.cells} == {20}
