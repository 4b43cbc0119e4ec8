"""The page on TEA's samples: its numbers are those of the rows, its intervals those of differences image by image."""

from __future__ import annotations

import importlib
import json
import math
import statistics
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from reading import HOME
from steep.bench.rows import packed

PAGE = HOME / "docs" / "samples.md"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HOME / "docs" / "generate"))
    return importlib.import_module("samples_table")


def rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HOME / "results" / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]


def row(flags: list[int], shift: str = "fog", seed: int = 0, sequence: tuple[Any, ...] = (), ece: float = 0.1) -> Any:
    spec = {"shift": shift, "seed": seed, "sequence": list(sequence)}
    n = len(flags)
    right = packed(np.array(flags, dtype=bool))
    return {"spec": spec, "n": n, "accuracy": sum(flags) / n, "right": right, "ece": ece}


def test_an_image_is_one_draw_under_however_many_corruptions(table: ModuleType) -> None:
    ours = [row([1, 1, 0, 1]), row([1, 0, 0, 1], "snow")]
    theirs = [row([1, 0, 0, 1]), row([0, 0, 0, 1], "snow")]
    gain = table.accuracy(ours) - table.accuracy(theirs)
    changes = [50.0, 50.0, 0.0, 0.0]  # of each image, the mean over both corruptions, in percent
    assert gain.value == pytest.approx(25.0)
    assert gain.error == pytest.approx(statistics.stdev(changes) / math.sqrt(4))


def test_a_stream_of_several_sets_is_taken_apart_into_its_images(table: ModuleType) -> None:
    stream = [row([1, 1, 0, 1, 1, 0, 0, 1], sequence=(("fog", 5), ("snow", 5)))]
    parts = [row([1, 1, 0, 1]), row([1, 0, 0, 1], "snow")]
    assert table.accuracy(stream).value == pytest.approx(62.5)
    assert table.accuracy(stream).error == pytest.approx(table.accuracy(parts).error)


def test_the_spread_of_seeds_counts_where_it_is_larger(table: ModuleType) -> None:
    alike = [row([1, 0, 1, 0], seed=seed) for seed in (0, 1)]
    apart = [row([1, 1, 1, 1], seed=0), row([0, 0, 0, 0], seed=1)]
    plain = [row([1, 0, 1, 0])]
    assert (table.accuracy(alike) - table.accuracy(plain)).error == 0
    assert (table.accuracy(apart) - table.accuracy(plain)).error == pytest.approx(50.0)  # ±70.7, by √2


def test_a_difference_in_calibration_has_students_interval_over_corruptions(table: ModuleType) -> None:
    names = ("fog", "snow", "frost")
    ours = [row([1, 0], name, ece=value) for name, value in zip(names, (0.1, 0.2, 0.3), strict=True)]
    theirs = [row([1, 0], name, ece=0.1) for name in names]
    difference = table.ece_difference(table.Comparison("reset", "", "tea", ours, theirs))
    assert difference.value == pytest.approx(10.0)
    assert 2 * difference.error == pytest.approx(4.303 * 10 / math.sqrt(3), rel=1e-3)  # t of 2 degrees of freedom
    one = table.Comparison("mixed", "", "tea", [row([1, 1, 0, 0], ece=0.3)], [row([1, 0, 0, 0], ece=0.1)])
    assert table.ece_difference(one).value == pytest.approx(20.0)
    assert table.ece_difference(one).error == pytest.approx(50 / 2)  # that of the accuracies: 100, 0, 0, 0 over four


def test_the_page_shows_the_means_of_the_rows() -> None:
    page = PAGE.read_text(encoding="utf-8")
    cells = [r for r in rows("samples/cells-cpu") if r["spec"]["protocol"] == "reset" and r["spec"]["limit"] == 1000]
    means: dict[str, float] = {}
    for label in ("energy", "tea-fast", "tea-1-step"):
        right = [100 * r["accuracy"] for r in cells if r["spec"]["label"] == label]
        assert len(right) == (45 if label == "tea-fast" else 15)
        means[label] = statistics.fmean(right)
    for label in ("tea-fast", "tea-1-step"):
        (line,) = [
            line
            for line in page.splitlines()
            if line.startswith("| reset | WRN-40-2 | 15 × 1,000") and f"| {label} |" in line
        ]
        gain = means[label] - means["energy"]
        assert f"| {means['energy']:.1f} | " in line
        assert f"{gain:+.2f} (".replace("-", "−").replace("+0.00", "0.00").replace("−0.00", "0.00") in line


def test_the_page_shows_the_ends_of_the_long_stream() -> None:
    (energy,) = [
        r for r in rows("long-stream-cpu") if (r["variant"], r["guard"], r["images"]) == ("energy", "off", 200_000)
    ]
    first, last = (f"{100 * energy['curve'][place]:.1f}" for place in (0, -1))
    page = PAGE.read_text(encoding="utf-8")
    assert f"{first}\u00a0→\u00a0{last}" in page
    assert f"{first} to {last}" in page
