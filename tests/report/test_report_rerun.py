"""The recipe a page gives: planned, it is the grid the rows came from."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest

from made_rows import row
from steep.bench.recipe import plan
from steep.bench.rows import Row, read
from steep.bench.spec import Cell
from steep.methods import METHODS
from steep.report.rerun import command, recipe
from steep.report.tables import build


def rows_of(cells: Any) -> list[Row]:
    """Rows as a bench of these cells would leave them."""
    made = []
    for cell in cells:
        segments = [{"name": name, "severity": level, "n": 1, "error": 0.5} for name, level in cell.sequence]
        made.append({"key": cell.key(), "spec": cell.to_json(), "accuracy": 0.5, "n": 1, "segments": segments})
    return made


def again(rows: list[Row], tmp_path: Path) -> set[Cell]:
    """Plan the recipes of every table of some rows, with the options the command line has."""
    cells: set[Cell] = set()
    for table in {str(table.spec): table for table in build(rows)}.values():
        text = recipe(table)
        assert text is not None
        (tmp_path / "again.toml").write_text(text, encoding="utf-8")
        words = shlex.split(command(table))
        sets = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        cells |= set(plan(str(tmp_path / "again.toml"), sets=sets, require=False).cells)
    return {dataclasses.replace(cell, weights_sha256="", label="") for cell in cells}


def cells_of(rows: list[Row]) -> set[Cell]:
    return {dataclasses.replace(Cell.from_json(row["spec"]), weights_sha256="", label="") for row in rows}


def test_the_stored_rows_give_their_own_grid(stored: Path, tmp_path: Path) -> None:
    rows = read(stored)
    assert len(cells_of(rows)) == 150
    assert again(rows, tmp_path) == cells_of(rows)


@pytest.mark.parametrize(
    "name", ["digits", "digits-continual", "digits-gradual", "digits-label-shift", "label-shift", "table-3-pacs"]
)
def test_every_kind_of_recipe_comes_back(name: str, tmp_path: Path) -> None:
    rows = rows_of(plan(name, require=False, limit=50).cells)
    assert again(rows, tmp_path) == cells_of(rows)


def test_clean_and_severities_come_back(tmp_path: Path) -> None:
    rows = rows_of(plan("table-1-cifar10", require=False, only=["method=tea,sar", "seed=0"]).cells)
    assert {row["spec"]["severity"] for row in rows} == {0, 1, 2, 3, 4, 5}
    assert again(rows, tmp_path) == cells_of(rows)


def test_none_where_a_number_is_the_default_goes_onto_the_command_line(tmp_path: Path) -> None:
    cells = plan("digits", only=["method=eta", "setting=paper"], sets=["eta.margin_classes=none"], require=False).cells
    rows = rows_of(cells)
    assert "--set eta.margin_classes=none" in command(build(rows)[0])
    assert again(rows, tmp_path) == cells_of(rows)


def test_none_goes_onto_the_command_line_wherever_it_is_not_the_default() -> None:
    for name, method in METHODS.items():
        for item in dataclasses.fields(method):
            words = command(build([row(name, "fog", 0.5, hyper={item.name: None})])[0])
            assert (f"--set {name}.{item.name}=none" in words) is (getattr(method(), item.name) is not None)


def test_a_stream_that_is_no_grid_has_no_recipe() -> None:
    segments = [{"name": "fog", "severity": 5, "n": 1, "error": 0.5}]
    odd = row("tea", "sequence", 0.5, protocol="continual", segments=segments)
    odd["spec"]["sequence"] = [["fog", 1], ["snow", 5]]
    assert recipe(build([odd])[0]) is None


def test_text_of_a_stranger_stays_one_word_and_one_value(tmp_path: Path) -> None:
    nasty = 'w\'; rm -rf ~ #\n"""\n[methods.evil]\nx=1'
    made = row("tea", "fog", 0.5, weights=nasty, label="a.b]\n[x")
    table = build([made])[0]
    words = shlex.split(command(table))
    assert words[:3] == ["steep", "bench", "again-1.toml"]
    assert [word for word in words if "rm -rf" in word] == [f"{nasty}.safetensors"]
    import tomllib

    text = recipe(table)
    assert text is not None
    read_back = tomllib.loads(text)
    assert read_back["weights"] == nasty
    assert len(read_back["methods"]) == 1
