"""Recipes and stores with something wrong in them are refused by name, never with a bare error of Python."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steep import recipes
from steep.bench import cell as one
from steep.bench.recipe import plan
from steep.bench.rows import read
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.cli import main
from steep.errors import SteepError

pytestmark = pytest.mark.hostile

ODD: list[Any] = [
    *(None, True, 0, -1, 3, 2**70, 1.5, -0.0, float("nan"), float("inf"), 1e-300),
    *("", "x", "../x", "a/b", "\x00", "n" * 300, "0..9", "9..0", "0..999999999", "full", "{source}", "mine.py:X"),
    *([], [1], ["fog"], [[]], [None], [{}], {}, {"lr": 1}, {"": 1}, {"method": 3}, {"method": "tea", "lr": []}),
]

RECIPES: list[dict[str, Any]] = [
    {
        "kind": "bench",
        "about": "a grid",
        "data": "digits-c",
        "model": "wrn-10-1",
        "weights": "untrained",
        "train": "train-digits",
        "shifts": ["fog", "clean"],
        "severities": [1, 5],
        "protocol": "reset",
        "precision": "float32",
        "limit": 20,
        "size": 8,
        "channels": 1,
        "delta": 0.1,
        "batch_size": 10,
        "steps": 1,
        "episodic": False,
        "predict": "after",
        "guard": "off",
        "seeds": [0, 1],
        "settings": ["paper", "tuned"],
        "set": {"tent.lr": 0.1},
        "methods": {"source": {}, "tent": {"lr": 0.1, "steps": 2}, "other": {"method": "tea", "start": [0, 1]}},
    },
    {
        "kind": "bench",
        "data": "pacs",
        "model": "resnet-18-bn",
        "weights": "pacs-{source}",
        "sources": {"photo": {"steps": 2, "set": {"tent.lr": 0.1}}, "sketch": {}},
        "methods": {"tent": {"seeds": "0..2"}},
    },
]


def mutate(value: Any, draw: random.Random) -> Any:
    """Change, drop or add one thing somewhere."""
    changed = holder = copy.deepcopy(value)
    while True:
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if not (isinstance(holder[key], (dict, list)) and holder[key]) or draw.random() < 0.3:
            break
        holder = holder[key]
    kind = draw.choice(["change", "change", "change", "drop", "add"])
    if kind == "drop":
        del holder[key]
    elif kind == "add" and isinstance(holder, dict):
        holder[draw.choice(["", "x", "lr", "steps", "method", "tea"])] = draw.choice(ODD)
    else:
        holder[key] = draw.choice(ODD)
    return changed


def refused(call: Callable[[], object]) -> bool:
    """Whether it ends in an error of steep's; any other error passes through."""
    try:
        call()
    except SteepError as error:
        return bool(str(error))
    return False


@pytest.mark.parametrize("recipe", RECIPES, ids=["digits", "pacs"])
def test_recipes(recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    (tmp_path / "mutant.toml").touch()
    tables = [mutate(recipe, draw) for _ in range(400)]
    waiting = iter(tables)
    monkeypatch.setattr(recipes.tomllib, "loads", lambda text: next(waiting))
    outcomes = [refused(lambda: plan(str(tmp_path / "mutant.toml"), require=False)) for _ in tables]
    assert 200 < sum(outcomes) < 400


@pytest.mark.parametrize("text", ["", "kind", "kind = 3", "kind = 'bench'\n[methods", "[[kind]]", "kind.a = 1"])
def test_texts_that_are_no_recipe(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SteepError, match="bad"):
        plan(str(tmp_path / "bad.toml"))


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    cells = plan(
        "digits", sets=["weights=untrained", "seeds=[0]"], only=["method=source,tent", "shift=fog"], limit=20
    ).cells
    folder = tmp_path_factory.mktemp("store")
    with Store(folder) as store:
        for cell in cells:
            store.append(one.run(cell, Sources()))
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def use(path: Path) -> None:
    """Read a store in both ways there are, and make its cells again."""
    rows = read(path)
    with Store(path) as store:
        store.begin([row["key"] for row in rows])
    for row in rows:
        Cell.from_json(row["spec"]).key()


def test_stores(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    draw = random.Random(1)
    path = tmp_path / "rows.jsonl"
    outcomes = []
    for number in range(300):
        text = "".join(json.dumps(row) + "\n" for row in mutate(lines, draw))
        if number % 10 == 0:  # bytes, not values
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice(["", "\x00", "}", "\n", "é", "[" * 5000]) + text[at + draw.randrange(1, 9) :]
        path.write_text(text, encoding="utf-8")
        outcomes.append(refused(lambda: use(path)))
    assert 100 < sum(outcomes) < 300


def test_reports_of_such_stores(
    lines: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, codes = random.Random(2), []
    path = tmp_path / "rows.jsonl"
    forms = ("terminal", "markdown", "csv", "latex", "html")
    for number in range(75):
        path.write_text("".join(json.dumps(row) + "\n" for row in mutate(lines, draw)), encoding="utf-8")
        codes.append(main(["report", str(path), "--format", forms[number % 5], "--out", str(tmp_path / "report")]))
    assert set(codes) == {0, 2}
