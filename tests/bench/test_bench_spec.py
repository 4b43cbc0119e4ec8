from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from steep.bench.rows import decode, encode, stable
from steep.bench.spec import Cell, as_hyper
from steep.errors import InputError

CELL = Cell(
    data="cifar10-c",
    shift="fog",
    severity=5,
    model="wrn-28-10",
    weights="cifar10-wrn-28-10",
    weights_sha256="ab" * 32,
    method="tea",
    hyper=as_hyper({"lr": 1e-3, "start": [-1.0, 1.0], "chains": None}),
    predict="after",
)


def test_key_is_the_same_for_ever() -> None:
    # Stores of today have to be resumable tomorrow: a change of this value orphans every row there is.
    assert CELL.key() == "663d83158801958670d0f88218e5d6523691a7013ba1fa4657d068136e4d544d"


def test_cells_are_hashable_and_equal_by_what_decides_the_number() -> None:
    named = replace(CELL, label="tea-fast")
    assert named == CELL
    assert hash(named) == hash(CELL)
    assert named.key() == CELL.key()
    assert len({CELL, named, replace(CELL, seed=1)}) == 2


OTHERS: dict[str, Any] = {
    "sequence": (("fog", 5),),
    "hyper": as_hyper({"lr": 1e-4}),
    "delta": 0.2,
    "episodic": True,
    "size": 32,
    "channels": 3,
    "limit": 7,
}


@pytest.mark.parametrize("name", [f.name for f in fields(Cell) if f.name != "label"])
def test_every_field_but_the_label_is_in_the_key(name: str) -> None:
    value = getattr(CELL, name)
    other = OTHERS.get(name, value + 1 if isinstance(value, int) else f"{value}x")
    assert replace(CELL, **{name: other}).key() != CELL.key()


def test_json_round_trip() -> None:
    cell = replace(CELL, sequence=(("fog", 1), ("snow", 5)), label="x")
    again = Cell.from_json(decode(encode({"schema": 1, "key": "", "spec": cell.to_json()}))["spec"])
    assert again == cell
    assert again.label == "x"
    assert again.key() == cell.key()
    with pytest.raises(InputError, match="got also \\['colour'\\]"):
        Cell.from_json({**CELL.to_json(), "colour": "red"})


def test_rows_keep_nan_and_infinity_in_strict_json() -> None:
    line = encode({"schema": 1, "key": "k", "spec": {"weights": "NaN"}, "ece": float("nan"), "x": [float("-inf")]})
    assert b'"ece":"NaN"' in line
    row = decode(line)
    assert row["ece"] != row["ece"]
    assert row["x"] == [float("-inf")]
    assert row["spec"]["weights"] == "NaN"  # a name is a name


def test_stable_drops_times_and_places_only() -> None:
    row = {"key": "k", "accuracy": 1.0, "seconds": 2.0, "env": {}, "started": "", "finished": "", "n": 3}
    assert stable(row) == {"key": "k", "accuracy": 1.0, "n": 3}
