"""How sure a difference is, where rows say which images were right: against numpy's own, and a bootstrap."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from made_rows import METHODS, cell
from steep.report import claims
from steep.report.claims import HOLDS, NOISE
from steep.report.noise import Measured, accuracy, weighted
from steep.report.paper import benchmark
from steep.report.summary import headline
from steep.report.tables import build

N = 400
FOG, SNOW = ("fog", 5), ("snow", 5)
Bits = np.ndarray[Any, np.dtype[np.bool_]]


def answered(method: str, shift: str, right: Bits, **more: Any) -> dict[str, Any]:
    made = cell(method, shift, float(right.mean()), n=len(right), protocol="reset", **more)
    return {**made, "right": base64.b64encode(np.packbits(right)).decode()}


@pytest.fixture
def answers() -> dict[str, Bits]:
    """Two methods on two corruptions: an image is hard for both, under both."""
    draw = np.random.default_rng(0)
    hard = draw.random(N)
    first = np.stack([hard + 0.3 * draw.random(N) > level for level in (0.5, 0.6)])
    flipped = draw.random((2, N)) < 0.05
    return {"bn": first, "tea": first ^ flipped}


def measured(answers: dict[str, Bits], method: str, **more: Any) -> Measured:
    by_place = {FOG: [answered(method, "fog", answers[method][0], **more)]}
    by_place[SNOW] = [answered(method, "snow", answers[method][1], **more)]
    value = accuracy(by_place)
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (0.5, 0.4, "+0.5 points (95 %: −0.3 to +1.3), not significant"),
        (-1.96, 0.1, "−2.0 points (95 %: −2.2 to −1.8)"),
        (0.0, 0.71, "tie (95 %: −1.4 to +1.4)"),
        (0.0, 0.0, "tie"),
        (0.04, 0.01, "+0.04 points (95 %: +0.02 to +0.06)"),
    ],
)
def test_a_difference_in_words(value: float, error: float, words: str) -> None:
    assert str(Measured(value, error)) == words


def test_a_difference_is_taken_image_by_image(answers: dict[str, Bits]) -> None:
    away = measured(answers, "tea") - measured(answers, "bn")
    each = 100 * (answers["tea"].astype(float) - answers["bn"]).mean(axis=0)  # of an image, over both corruptions
    assert away.value == pytest.approx(each.mean())
    assert away.error == pytest.approx(each.std(ddof=1) / np.sqrt(N))
    draw = np.random.default_rng(1)
    again = [each[draw.integers(N, size=N)].mean() for _ in range(2000)]
    assert away.error == pytest.approx(np.std(again), rel=0.1)
    assert (-away).error == away.error
    assert (away - away).error == 0


def test_an_image_under_two_corruptions_is_one_image(answers: dict[str, Bits]) -> None:
    one = answers["bn"][0]
    twice = accuracy({point: [answered("bn", point[0], one)] for point in (FOG, SNOW)})
    once = accuracy({FOG: [answered("bn", "fog", one)]})
    assert twice is not None
    assert once is not None
    assert twice.error == pytest.approx(once.error)  # nothing new was learnt
    assert once.error == pytest.approx(100 * np.sqrt(one.mean() * (1 - one.mean()) / (N - 1)))


def test_rows_that_do_not_say_it_are_as_different_runs(answers: dict[str, Bits]) -> None:
    silent = {FOG: [cell("tea", "fog", 0.7, n=N)]}
    other = {FOG: [answered("bn", "fog", answers["bn"][0])]}
    value, base = accuracy(silent), accuracy(other)
    assert value is not None
    assert base is not None
    assert (value - base).error == pytest.approx(np.hypot(value.error, base.error))
    damaged = {FOG: [{**other[FOG][0], "right": "not base64"}]}
    assert accuracy(damaged) == accuracy({FOG: [cell("bn", "fog", float(answers["bn"][0].mean()), n=N)]})


def test_other_images_are_no_pairs(answers: dict[str, Bits]) -> None:
    whole = measured(answers, "tea")
    fewer = measured({"bn": answers["bn"][:, :100]}, "bn")
    assert (whole - fewer).error == pytest.approx(np.hypot(whole.error, fewer.error))
    domains = [
        accuracy({("photo", 0): [{**answered("bn", "photo", answers["bn"][0], severity=0), "data": [{"sha256": of}]}]})
        for of in "ab"
    ]
    assert None not in domains
    here, there = domains
    assert here is not None
    assert there is not None
    assert (here - there).error == pytest.approx(np.hypot(here.error, there.error))


def test_seeds_and_weights_count(answers: dict[str, Bits]) -> None:
    seeds = [answered("tea", "fog", answers["tea"][0], seed=0), answered("tea", "fog", answers["bn"][0], seed=1)]
    both = weighted({FOG: seeds}, {FOG: 2.0})
    assert both is not None
    each = 100 * 2 * (answers["tea"][0].astype(float) + answers["bn"][0]) / 2
    spread = 100 * 2 * np.std([answers["tea"][0].mean(), answers["bn"][0].mean()], ddof=1) / np.sqrt(2)
    assert both.value == pytest.approx(each.mean())
    assert both.error == pytest.approx(max(spread, each.std(ddof=1) / np.sqrt(N)))
    assert (both - both).error == pytest.approx(np.sqrt(2) * spread)  # other seeds would differ, whatever the images
    assert (100.0 - both).error == both.error


@pytest.mark.parametrize(("says", "verdict"), [(True, HOLDS), (False, NOISE)])
def test_a_small_lead_over_a_method_that_agrees_is_found(says: bool, verdict: str) -> None:
    draw = np.random.default_rng(2)
    rows = []
    for shift in benchmark():
        right = draw.random(1000) < 0.7
        for name in METHODS:
            mine = right.copy()
            if name == "tea":
                mine[np.flatnonzero(~right)[:6]] = True  # 0.6 points, on images that only tea has right
            made = answered(name, shift, mine if name != "source" else draw.random(1000) < 0.4)
            rows.append(made if says else {key: value for key, value in made.items() if key != "right"})
    (table,) = build(rows)
    first = next(claim for claim in claims.of(table) if claim.text == "TEA has the highest mean accuracy")
    assert first.verdict == verdict
    assert headline(table).startswith("tea leads with ")
    assert ("not significant" in headline(table)) is (verdict == NOISE)


def test_a_lead_over_the_source_model_alone_may_be_noise_too(answers: dict[str, Bits]) -> None:
    right = answers["bn"][0]
    for ahead, sure in ((2, False), (40, True)):
        more = right.copy()
        more[np.flatnonzero(~right)[:ahead]] = True
        more[np.flatnonzero(right)[:1]] = False
        rows = [answered("source", "fog", right), answered("tea", "fog", more)]
        (table,) = build(rows)
        assert headline(table).startswith("tea leads with ")
        assert ("not significant" in headline(table)) is not sure
