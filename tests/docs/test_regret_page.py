"""What it costs not to know the best method: situations are found in the rows, and like is compared with like."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from made_rows import row as made
from reading import HOME
from steep.core.settings import Behaviour

GUARD = Behaviour().guard
SHIFTS = ("fog", "snow")


@pytest.fixture
def finder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HOME / "docs" / "generate"))
    return importlib.import_module("situations")


@pytest.fixture
def table(finder: ModuleType) -> ModuleType:
    return importlib.import_module("regret_table")


def row(method: str, percent: float, shift: str = "fog", **more: Any) -> dict[str, Any]:
    guard = more.pop("guard", GUARD if method in ("auto", "infuse") else "off")
    return made(method, shift, percent / 100, guard=guard, **more)


def rows(method: str, *percents: float, **more: Any) -> list[dict[str, Any]]:
    return [row(method, percent, shift, **more) for percent, shift in zip(percents, SHIFTS, strict=False)]


def accuracy(situation: Any) -> dict[str, float]:
    return {str(line): pytest.approx(value) for line, value in situation.accuracy.items()}


def test_a_method_counts_only_where_it_has_every_set_that_auto_has(finder: ModuleType) -> None:
    stored = [*rows("source", 50, 60), *rows("auto", 70, 60), *rows("tent", 90, 80), *rows("bn", 99)]
    (situation,) = finder.of_cells(stored)
    assert accuracy(situation) == {"source": 55, "auto": 65, "tent": 85}
    assert situation.partial == ("bn",)
    assert situation.sets == {"fog": pytest.approx(20), "snow": pytest.approx(0)}


def test_a_source_model_without_every_set_leaves_no_gains(finder: ModuleType, table: ModuleType) -> None:
    (situation,) = finder.of_cells([*rows("source", 50), *rows("auto", 70, 60), *rows("tent", 90, 80)])
    assert situation.sets == {}
    assert table.gain(situation) is None
    assert "1 situations, 0 of them with the source model" in table.beside_source([situation])[0]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"batch_size": 7}, "batches of 7"),
        ({"protocol": "label-shift"}, "label shift"),
        ({"severity": 3}, "severity 3"),
        ({"limit": 123}, "123 images each"),
        ({"model": "wrn-28-10"}, "WRN-28-10"),
        ({"weights_sha256": "cd" * 32}, "weights sha256 cdcdcdcdcdcd"),
        ({"data": "cifar10-c"}, "CIFAR-10-C"),
    ],
)
def test_what_differs_is_another_situation_and_is_named(finder: ModuleType, change: dict[str, Any], name: str) -> None:
    both = [*rows("auto", 70, 60), *rows("tent", 80, 70)]
    other = [*rows("auto", 30, 20, **change), *rows("tent", 10, 20, **change)]
    first, second = finder.of_cells([*both, *other])
    assert name in second.name
    assert name not in first.name
    assert accuracy(first) == {"auto": 65, "tent": 75}
    assert accuracy(second) == {"auto": 25, "tent": 15}


def test_rows_on_other_images_or_without_auto_are_no_rivals(finder: ModuleType) -> None:
    stored = [*rows("auto", 70, 60), *rows("tent", 99, 99, limit=5), *rows("bn", 99, 99, severity=1)]
    (situation,) = finder.of_cells(stored)
    assert accuracy(situation) == {"auto": 65}


def test_other_weights_of_the_same_domain_are_another_training(finder: ModuleType) -> None:
    """Each domain has a model of its own; a second training of some of them is not mixed with the first of all."""
    stored = []
    for source, weights in (("dslr", "1"), ("webcam", "2"), ("dslr", "3")):
        day = "2026-01-02" if weights == "3" else "2026-01-01"
        about = {"source": source, "severity": 0, "weights_sha256": weights, "data": "office-caltech"}
        stored += [row(name, 10 * float(weights), "amazon", **about, finished=day) for name in ("auto", "source")]
    stored += [row("tent", 50, "amazon", source="webcam", severity=0, weights_sha256="2", data="office-caltech")]
    first, second = finder.of_cells(stored)
    assert accuracy(first) == {"auto": 15, "source": 15}
    assert accuracy(second) == {"auto": 30, "source": 30}
    assert first.group == second.group == finder.SHIFTS
    assert first.partial == ("tent",)
    assert set(first.sets) == {"dslr → amazon", "webcam → amazon"}


def test_of_a_cell_run_twice_the_last_counts_and_auto_counts_with_its_guard(finder: ModuleType) -> None:
    stored = [row("auto", 70, finished="2026-02-02"), row("auto", 10), row("auto", 99, guard="off"), row("tent", 60)]
    (situation,) = finder.of_cells([*stored, row("tent", 61, guard=GUARD)])
    assert accuracy(situation) == {"auto": 70, "tent": 61}


def test_trials_are_no_methods_but_two_views_and_settings_are(finder: ModuleType) -> None:
    stored = [row("auto", 70), row("tent", 60, label="tent-after"), row("tent", 61, label="tent mirrored")]
    (situation,) = finder.of_cells([*stored, row("tent", 62, setting="tuned")])
    assert accuracy(situation) == {"auto": 70, "tent mirrored": 61, "tent (tuned)": 62}


def test_a_stream_without_an_end_counts_with_the_default_guard(finder: ModuleType) -> None:
    def stream(method: str, value: float, guard: str, **more: Any) -> dict[str, Any]:
        about = {"benchmark": finder.LONG_STREAM, "variant": method, "images": 1000, "batch": 10, "device": "cpu"}
        return {**about, "accuracy": value, "guard": guard, **more}

    stored = [stream("source", 0.5, "off"), stream("auto", 0.7, GUARD), stream("auto", 0.9, "off")]
    stored += [stream("tent", 0.6, "off"), stream("tent", 0.65, GUARD), stream("tent-hot", 0.99, "off")]
    stored += [stream("tent", 0.99, GUARD, images=2000)]  # without auto
    (situation,) = finder.endless(stored)
    assert accuracy(situation) == {"source": 50, "auto": 70, "tent": 65}


def test_files_of_pictures_that_are_new_are_read(finder: ModuleType, tmp_path: Path) -> None:
    for place in ("some.jsonl", "real-pictures/new.jsonl", "tried/other.jsonl"):
        file = tmp_path / place
        file.parent.mkdir(exist_ok=True)
        lines = [row("auto", 70, label=place), {"benchmark": "speed", "method": "auto"}, {"spec": {"threads": 1}}]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert {each["spec"]["label"] for each in finder.stored(tmp_path)} == {"some.jsonl", "real-pictures/new.jsonl"}


def test_regret_is_to_the_best_fixed_method_and_beside_that_of_auto(
    table: ModuleType, finder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "LEAST", 2)
    stored = [row("source", 50), row("auto", 70), row("tent", 60), row("bn", 55)]
    stored += [row(name, value, batch_size=7) for name, value in (("source", 50), ("auto", 49), ("tent", 53))]
    every = finder.of_cells(stored)
    lines = {line.split("|")[1].strip(): line for line in table.by_method(every).splitlines()[2:]}
    assert "| 2 | −3.0 | – | 4.0 (" in lines["auto"]  # −10 and 4: it may be better than all
    assert "−1.0 (" in lines["auto"]
    assert "| 2 | 0.0 | −3.0 | 0.0 (" in lines["tent"]
    assert "| 2 | 6.5 | −3.0 | 10.0 (" in lines["source"]
    assert "bn" not in lines  # once only: a rival without a line
    assert "bn (1)" in table.missing(every)[0]


@pytest.mark.parametrize(("ours", "sentence"), [(49.6, "in none of 1 situations"), (49.4, "in 1 of 1 situations: ")])
def test_where_auto_is_below_the_source_model_is_said(
    table: ModuleType, finder: ModuleType, ours: float, sentence: str
) -> None:
    every = finder.of_cells([row("source", 50), row("auto", ours), row("tent", 60)])
    (text,) = table.beside_source(every)
    assert sentence in text
    assert (f"{every[0].name} (−0.6)" in text) == (ours < 49.5)


def test_sets_below_the_source_model_are_said_where_the_mean_is_above(table: ModuleType, finder: ModuleType) -> None:
    every = finder.of_cells([*rows("source", 50, 50), *rows("auto", 90, 47), *rows("tent", 1, 1)])
    situations, sets = table.beside_source(every)
    assert "in none of 1 situations" in situations
    assert "in 1 of 2 sets: " in sets
    assert "snow (−3.0)" in sets


def test_the_stored_rows_hold_every_kind(finder: ModuleType) -> None:
    """The page is made of more than one kind of rows; no situation is there twice."""
    every = finder.situations()
    assert {finder.MISLEAD, finder.SHIFTS, finder.ENDLESS, "CIFAR-10-C", "ImageNet-C"} <= {each.group for each in every}
    names = [each.name for each in every]
    assert len(set(names)) == len(names)
    assert all(len(each.accuracy) > 1 for each in every)
