"""Verdicts on the paper's claims, from rows whose numbers are worked out by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from scipy import stats

from made_rows import ABOUT, Rows, cell, grid, ten
from steep.bench.rows import pooled
from steep.report.claims import FAILS, HOLDS, NOISE, UNKNOWN
from steep.report.noise import Measured, accuracy
from steep.report.paper import benchmark
from steep.report.tables import build
from tools.results_page.claims import across
from tools.results_page.claims.calibrated import calibration
from tools.results_page.claims.energy import chance_of
from tools.results_page.claims.placed import Claim


def claim_of(rows: Rows, text: str, where: str, analyses: Rows | None = None) -> Claim:
    (claim,) = [c for c in across(build(rows) if rows else [], analyses or []) if c.text == text and where in c.where]
    return claim


FIRST = "TEA has the highest mean accuracy and the lowest mCE"
AT_5 = "CIFAR-10-C, severity 5 · WRN-28-10"


def test_nothing_is_decided_without_rows() -> None:
    every = across([])
    assert {claim.verdict for claim in every} == {UNKNOWN}
    texts = " ".join(claim.text for claim in every)
    for word in (
        "mean accuracy",
        "ECE",
        "MCE",
        "energy",
        "severity",
        "SGLD rate",
        "SGLD steps",
        "Samples",
        "GroupNorm",
    ):
        assert word in texts
    assert any(claim.text.startswith("Admitted") for claim in every)


@pytest.mark.parametrize(("tea", "verdict"), [(0.75, HOLDS), (0.65, FAILS), (0.701, NOISE), (0.699, NOISE)])
def test_first_by_more_than_noise(tea: float, verdict: str) -> None:
    # 15 sets of 10,000 answers, 70 % right: a mean has the error sqrt(0.21 / 150,000) = 0.118 points, a difference
    # of two 0.167, so 0.1 points are noise and 5 are not.
    claim = claim_of(grid(ten(tea)), FIRST, AT_5)
    assert claim.verdict == verdict
    assert claim.here.startswith(f"{100 * tea:.2f}; against ")
    assert "paper 83.34, +1.93 against tent" in claim.here
    assert claim.origin == "n = 10,000 images a set; 1 seed; a"
    error = math.hypot(100 * math.sqrt(tea * (1 - tea) / 150_000), 100 * math.sqrt(0.21 / 150_000))
    low, high = (f"{100 * (tea - 0.7) + side * 2 * error:+.1f}".replace("-", "−") for side in (-1, 1))
    assert f"(95 %: {low} to {high})" in claim.here


def test_the_spread_of_seeds_is_noise_too() -> None:
    rows = grid({name: value for name, value in ten(0.0).items() if name != "tea"})
    for seed, value in enumerate((0.66, 0.76)):  # mean 0.71, deviation 7.07 points, error 5
        rows += grid({"tea": value}, seed=seed)
    claim = claim_of(rows, FIRST, AT_5)
    assert claim.verdict == NOISE
    assert "+1.0 points (95 %: −9.0 to +11.0), not significant" in claim.here
    assert "1 to 2 seeds" in claim.origin


def test_a_missing_method_or_cell_decides_nothing() -> None:
    without = {name: value for name, value in ten(0.9).items() if name != "shot"}
    claim = claim_of(grid(without), FIRST, AT_5)
    assert claim.verdict == UNKNOWN
    assert "shot" in claim.here
    assert claim_of(grid(ten(0.9))[:-1], FIRST, AT_5).verdict == UNKNOWN  # one corruption of tea is not there
    # another batch, picture size or protocol is not what the paper claims something of
    assert claim_of(grid(ten(0.9), batch_size=1), FIRST, AT_5).verdict == UNKNOWN
    assert claim_of(grid(ten(0.9), protocol="continual"), FIRST, AT_5).verdict == UNKNOWN


def test_variants_and_tuned_baselines_are_no_rivals_in_the_papers_claim() -> None:
    rows = grid(ten(0.75)) + grid({"tea-fast": 0.9}) + grid({"pl": 0.95}, setting="tuned")
    assert claim_of(rows, FIRST, AT_5).verdict == HOLDS
    tables = build(rows)
    asked = [claim for claim in across(tables, tuned=tables) if "tuned" in claim.text]
    assert [claim.verdict for claim in asked] == [FAILS]
    assert "pl (tuned)" in asked[0].here


def test_whole_sets_count_before_parts_and_are_never_one_mean() -> None:
    rows = grid(ten(0.9), limit=2000, n=2000, run="some") + grid(ten(0.6), run="all")
    claim = claim_of(rows, FIRST, AT_5)
    assert claim.here.startswith("60.00")
    assert claim.verdict == FAILS
    part = claim_of(grid(ten(0.9), limit=2000, n=2000), FIRST, AT_5)
    assert part.part == "first 2,000 images"
    assert "n = 2,000 images" in part.origin


def test_the_papers_own_exception_is_turned_round() -> None:
    rows = grid(ten(0.3, 0.4), (1, 2, 3, 4, 5), data="tiny-imagenet-c", batch_size=1000, size=32)
    claim = claim_of(rows, "TEA does not have the highest mean accuracy (the paper's own exception)", "Tiny-ImageNet-C")
    assert claim.verdict == HOLDS


def test_seeds_of_two_files_are_pooled() -> None:
    rows = grid({name: value for name, value in ten(0.0).items() if name != "tea"})
    rows += grid({"tea": 0.8}, seed=0, run="one") + grid({"tea": 0.82}, seed=1, run="two")
    claim = claim_of(rows, FIRST, AT_5)
    assert claim.here.startswith(
        "81.00; against bn: +11.0 points (95 %: +9.0 to +13.0)"
    )  # deviation of 80 and 82 over the root of two: 1
    assert claim.origin.endswith("; a, one, two")


GROWS = "TEA's gain over the source model grows with severity"


def graded(gains: list[float], **more: Any) -> Rows:
    rows: Rows = []
    for level, gain in enumerate(gains, 1):
        rows += grid({"source": 0.5, "bn": 0.55, "tea": 0.5 + gain}, (level,), **more)
    return rows


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.01, 0.05, 0.10, 0.20, 0.30], HOLDS),
        ([0.10, 0.1005, 0.0998, 0.15, 0.20], HOLDS),  # a step back within noise
        ([0.10, 0.20, 0.10, 0.20, 0.30], FAILS),  # a step back beyond it
        ([0.10, 0.1005, 0.1, 0.1, 0.1005], NOISE),
        ([0.30, 0.2, 0.2, 0.1, 0.05], FAILS),
    ],
)
def test_gain_by_severity(gains: list[float], verdict: str) -> None:
    claim = claim_of(graded(gains), GROWS, "CIFAR-10-C")
    assert claim.verdict == verdict
    assert claim.here.startswith(f"+{100 * gains[0]:.2f}, +{100 * gains[1]:.2f}")


def test_gain_by_severity_needs_every_severity() -> None:
    claim = claim_of(graded([0.1, 0.2, 0.3, 0.4]), GROWS, "CIFAR-10-C")
    assert claim.verdict == UNKNOWN
    assert "at severity 5" in claim.here


def test_severities_of_two_files_and_two_limits_make_one_trend() -> None:
    rows = [r for r in graded([0.01, 0.05, 0.1, 0.2, 0.3], limit=2000, n=2000, run="part") if r["spec"]["severity"] < 5]
    rows += grid({"source": 0.5, "tea": 0.9}, (5,), run="whole")
    claim = claim_of(rows, GROWS, "CIFAR-10-C")
    assert claim.verdict == HOLDS
    assert "+40.00 points" in claim.here
    assert claim.origin.startswith("n = 2,000 to 10,000 images a set")


def test_other_weights_or_another_precision_are_another_trend() -> None:
    gains = [0.01, 0.05, 0.1, 0.2, 0.3]
    for more in ({"weights_sha256": "cd" * 32}, {"precision": "bfloat16"}):
        rows = [r for r in graded(gains) if r["spec"]["severity"] < 5]
        rows += grid({"source": 0.5, "tea": 0.9}, (5,), **more)
        assert claim_of(rows, GROWS, "CIFAR-10-C").verdict == UNKNOWN
    # where some images have every severity, no severity is of others
    rows = graded(gains, limit=2000, n=2000) + grid({"source": 0.5, "tea": 0.9}, (5,))
    claim = claim_of(rows, GROWS, "CIFAR-10-C")
    assert "+30.00 points" in claim.here
    assert claim.origin.startswith("n = 2,000 images a set")


MILD = "Admitted: on mild shifts TEA does not improve on the source model"


@pytest.mark.parametrize(("tea", "verdict"), [(0.90, HOLDS), (0.95, NOISE), (0.98, FAILS)])
def test_mild_shifts(tea: float, verdict: str) -> None:
    rows = [cell("source", "brightness", 0.95, 1), cell("tea", "brightness", tea, 1), cell("bn", "brightness", 0.97, 1)]
    claim = claim_of(rows, MILD, "CIFAR-10-C · WRN-28-10, brightness")
    assert claim.verdict == verdict
    assert "against bn" in claim.here
    clean = [cell("source", "clean", 0.95, 0), cell("tea", "clean", tea, 0)]
    assert claim_of(clean, MILD, "CIFAR-10-C · WRN-28-10, clean").verdict == verdict


ENERGY = "The more TEA lowers the energy, the more accuracy it gains"


def energies(order: list[int]) -> Rows:
    """Each corruption's energy falls by its place in an order, its accuracy rises by its place in the benchmark."""
    rows: Rows = []
    for index, shift in enumerate(benchmark()):
        rows.append(cell("source", shift, 0.5, energy_before=-5.0, energy_after=-5.0))
        after = -5.0 - order[index]
        rows.append(cell("tea", shift, 0.6 + index / 100, energy_before=-5.0, energy_after=after))
    return rows


@pytest.mark.parametrize(
    ("order", "rank", "verdict"),
    [
        (list(range(15)), 1.0, HOLDS),
        (list(range(14, -1, -1)), -1.0, FAILS),
        ([7, 2, 14, 0, 9, 4, 11, 5, 1, 12, 3, 8, 13, 6, 10], 3 / 14, NOISE),
    ],
)
def test_energy_and_gain(order: list[int], rank: float, verdict: str) -> None:
    assert stats.spearmanr(order, range(15)).statistic == pytest.approx(rank, abs=1e-3)
    claim = claim_of(energies(order), ENERGY, AT_5)
    assert claim.verdict == verdict
    assert f"rank correlation {rank:.2f} over 15 corruptions".replace("-", "−") in claim.here


def test_energy_from_the_rows_of_an_analysis() -> None:
    flat = [
        {**ABOUT, "analysis": "energy-severity", "part": "point", "label": "tea", "shift": shift, "severity": 5,
         "seed": 0, "n": 1000, "limit": 1000, "energy_reduction": float(index), "gain": index / 100, "run": "energies"}
        for index, shift in enumerate(benchmark())
    ]  # fmt: skip
    claim = claim_of([], ENERGY, AT_5, flat)
    assert (claim.verdict, claim.origin) == (HOLDS, "n = 1,000 images a set; 1 seed; energies")
    assert claim_of([], ENERGY, AT_5, flat[:-1]).verdict == UNKNOWN


def test_the_chance_of_a_correlation_is_that_of_all_pairings() -> None:
    first, second = [1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5]
    measured = abs(stats.spearmanr(first, second).statistic)
    every = [
        abs(stats.spearmanr(first, other).statistic) >= measured - 1e-9 for other in itertools.permutations(second)
    ]
    assert chance_of(first, second) == pytest.approx(sum(every) / len(every), abs=0.01)


def bars(low: tuple[int, float, float], high: tuple[int, float, float]) -> dict[str, list[float]]:
    return {name: [low[i], high[i]] for i, name in enumerate(("counts", "confidence", "accuracy"))}


EXPECTED = "TEA has the lowest expected calibration error (ECE, ten bins) of source, TENT, SHOT and TEA"
MAXIMUM = "TEA has the lowest maximum calibration error (the paper's MCE; ten bins) of these four"


def test_calibration_by_hand() -> None:
    # tea: gaps 0.1 on 2,000 and 0.02 on 8,000 answers; the others 0.1 on all
    rows = [cell("tea", "clean", 0.9, 0, reliability=bars((2000, 0.5, 0.6), (8000, 0.95, 0.93)))]
    rows += [
        cell(name, "clean", 0.9, 0, reliability=bars((5000, 0.6, 0.5), (5000, 0.9, 0.8)))
        for name in ("source", "tent", "shot")
    ]
    expected, maximum = (claim_of(rows, text, "CIFAR-10, clean") for text in (EXPECTED, MAXIMUM))
    assert expected.verdict == HOLDS
    assert "source 10.00, tent 10.00, shot 10.00, tea 3.60" in expected.here
    assert maximum.verdict == NOISE
    assert "tea 10.00" in maximum.here
    assert "holds 2,000 of 10,000 answers" in maximum.here
    finer = [{**row, "calibration": bars((1000, 0.4, 0.6), (9000, 0.9, 0.9))} for row in rows]
    assert "of 15 bins: source 20.00" in claim_of(finer, MAXIMUM, "CIFAR-10, clean").here  # beside, never instead
    assert claim_of(rows[:-1], EXPECTED, "CIFAR-10, clean").verdict == UNKNOWN
    lone = cell("tea", "clean", 0.9, 0, reliability=bars((4, 0.5, 0.6), (9996, 0.92, 0.9)))
    few = claim_of([lone, *rows[1:]], MAXIMUM, "CIFAR-10, clean")
    assert few.verdict == NOISE
    assert "TEA and source are not told apart; TEA's worst bin holds 4 of 10,000 answers" in few.here
    assert "95 %" in maximum.here
    assert "95 %" not in few.here


def test_the_emptiest_bin_decides_nothing() -> None:
    sure = calibration(pooled([bars((3, 0.4, 1.0), (9997, 0.9, 0.9))]))
    assert sure is not None
    assert sure.maximum.value == pytest.approx(60.0)
    assert sure.maximum.error == pytest.approx(100 * math.sqrt(0.8 * 0.2 / 3))  # (3 + 1) / (3 + 2) right
    assert sure.expected.value == pytest.approx(100 * 0.6 * 3 / 10_000)
    twice = calibration(pooled([bars((3, 0.4, 1.0), (9997, 0.9, 0.9))] * 2), seeds=2)
    assert twice is not None
    assert twice.expected.error == pytest.approx(sure.expected.error)  # the same images again say nothing new


def varied(means: dict[float, float], parameter: str = "sgld_rate", **more: Any) -> Rows:
    return [
        {**ABOUT, "analysis": "sensitivity", "part": "point", "label": "tea", "parameter": parameter, "value": value,
         "usual": value == 0.1, "shift": shift, "severity": 5, "seed": 0, "accuracy": mean, "n": 10_000, "run": "s",
         "weights_sha256": "ab" * 32, "limit": None, "precision": "float32", **more}
        for value, mean in means.items()
        for shift in benchmark()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("worst", "stable", "first"),
    [(0.848, HOLDS, HOLDS), (0.841, NOISE, HOLDS), (0.80, FAILS, NOISE), (0.7, FAILS, FAILS)],
)
def test_sensitivity(worst: float, stable: str, first: str) -> None:
    flat = varied({0.001: worst, 0.1: 0.85, 0.4: 0.849})
    rows = grid({"source": 0.5, "tent": 0.80, "tea": 0.85})
    claim = claim_of(rows, "Accuracy stays within 1 point over SGLD rate 0.001–0.4", "CIFAR-10-C", flat)
    assert claim.verdict == stable
    assert f"{100 * worst:.2f} at 0.001 to 85.00 at 0.1: a spread of {85 - 100 * worst:.2f} points" in claim.here
    best = "TEA is the best method all over SGLD rate 0.001–0.4"
    assert claim_of(rows, best, "CIFAR-10-C", flat).verdict == first
    other = grid({"source": 0.5, "tent": 0.80}, limit=2000, n=2000)  # not the same images
    assert claim_of(other, best, "CIFAR-10-C", flat).verdict == UNKNOWN


def test_sensitivity_beyond_the_papers_range_is_no_part_of_its_claim() -> None:
    flat = varied({0.001: 0.849, 0.1: 0.85, 0.4: 0.849, 2.0: 0.3})
    claim = claim_of([], "Accuracy stays within 1 point over SGLD rate 0.001–0.4", "CIFAR-10-C", flat)
    assert claim.verdict == HOLDS
    assert claim.here.endswith("over 3 values")


def test_sensitivity_over_a_part_of_the_range_is_not_measured() -> None:
    claim = claim_of([], "Accuracy stays within 1 point over SGLD rate 0.001–0.4", "", varied({0.01: 0.8, 0.4: 0.8}))
    assert claim.verdict == UNKNOWN
    assert "only 0.01 to 0.4 were run" in claim.here


def test_sensitivity_takes_the_largest_run_of_those_over_the_whole_range() -> None:
    small = varied({0.001: 0.849, 0.1: 0.85, 0.4: 0.849}, limit=2000, n=2000, run="small")
    part = varied({0.01: 0.5, 0.1: 0.85, 0.4: 0.8}, run="part")
    large = varied({0.001: 0.8, 0.1: 0.85, 0.4: 0.849}, limit=5000, n=5000, run="large")
    text = "Accuracy stays within 1 point over SGLD rate 0.001–0.4"
    for rows in (small + part, part + small):
        assert claim_of([], text, "CIFAR-10-C", rows).here.startswith("84.90 at 0.001 to 85.00 at 0.1")
    assert claim_of([], text, "CIFAR-10-C", small + part + large).here.startswith("80.00 at 0.001 to 85.00 at 0.1")


CLOSER = "Samples of TEA's model are closer to the test images than those of the source model and of TENT's"


def test_samples() -> None:
    def distances(tea: float, covariance: float = 0.01) -> Rows:
        distance_of = {"real": (0.01, 0.001), "source": (0.3, 0.02), "tent": (0.25, 0.02), "tea": (tea, covariance)}
        return [
            {"analysis": "samples", "part": "distance", "data": "mnist", "shift": "clean", "severity": 0,
             "label": label, "seed": 0, "n": 100, "mean_distance": mean, "covariance_distance": cov, "run": "m"}
            for label, (mean, cov) in distance_of.items()
        ]  # fmt: skip

    assert claim_of([], CLOSER, "MNIST, turned", distances(0.1)).verdict == UNKNOWN
    verdicts = {
        (tea, cov): next(c.verdict for c in across([], distances(tea, cov)) if (c.text, c.where) == (CLOSER, "MNIST"))
        for tea, cov in ((0.1, 0.01), (0.27, 0.01), (0.1, 0.03), (0.245, 0.01))
    }
    # the last is closer than tent by 0.005, and as many real images come to 0.01
    assert list(verdicts.values()) == [HOLDS, FAILS, FAILS, NOISE]
    assert across([], distances(0.1))[-5].verdict == UNKNOWN  # to the eye: nothing measures that


def test_group_norm_at_severity_5_alone_says_something_too() -> None:
    text = f"works with GroupNorm: {FIRST}"
    accuracies = {name: value for name, value in ten(0.6).items() if name not in ("bn", "dua")}
    severe = grid(accuracies, model="resnet-50-gn")
    assert claim_of(severe, text, "CIFAR-10-C, severity 1–5 · ResNet-50").verdict == UNKNOWN
    asked = claim_of(severe, f"{text} (at this severity ours to ask)", "CIFAR-10-C, severity 5 · ResNet-50")
    assert asked.verdict == FAILS
    assert "paper" not in asked.here  # which has no such figure
    whole = grid(accuracies, (1, 2, 3, 4, 5), model="resnet-50-gn")
    assert claim_of(whole, text, "CIFAR-10-C, severity 1–5 · ResNet-50").verdict == FAILS
    assert not [claim for claim in across(build(whole), []) if "ours to ask" in claim.text and "Group" in claim.text]


def test_the_spread_of_samples_over_seeds_is_noise() -> None:
    distance_of = {"real": (0.01, 0.01), "source": (0.3, 0.3), "tent": (0.25, 0.25), "tea": (0.1, 0.38)}
    rows = [
        {"analysis": "samples", "part": "distance", "data": "mnist", "shift": "clean", "severity": 0, "label": label,
         "seed": seed, "n": 100, "mean_distance": mean, "covariance_distance": 0.1 + 0.1 * (label != "tea")}
        for label, means in distance_of.items()
        for seed, mean in enumerate(means)
    ]  # fmt: skip
    claim = next(c for c in across([], rows) if (c.text, c.where) == (CLOSER, "MNIST"))
    assert "tea 0.2400, source 0.3000, tent 0.2500" in claim.here
    assert claim.verdict == NOISE  # tea's 0.24 has a standard error of 0.14


def test_one_seed_of_samples_stays_one_where_another_set_has_two() -> None:
    distance_of = {"real": 0.01, "source": 0.3, "tent": 0.2501, "tea": 0.25}
    rows = [
        {"analysis": "samples", "part": "distance", "data": "pacs", "shift": shift, "severity": 0, "label": label,
         "seed": seed, "n": 70, "mean_distance": value, "covariance_distance": value, "source": "art_painting"}
        for shift, seeds in (("photo", 2), ("sketch", 1))
        for label, value in distance_of.items()
        for seed in range(seeds)
    ]  # fmt: skip
    claim = next(c for c in across([], rows) if (c.text, c.where) == (CLOSER, "PACS"))
    assert claim.verdict == NOISE  # of sketch nobody knows the spread, and 0.0001 is less than what real images come to


def test_calibration_is_over_the_seeds_that_every_shift_has() -> None:
    bad, good = bars((5000, 0.9, 0.1), (5000, 0.9, 0.1)), bars((5000, 0.9, 0.9), (5000, 0.9, 0.9))
    rows = grid({"source": 0.5, "tent": 0.5, "shot": 0.5}, reliability=bad) + grid({"tea": 0.5}, reliability=good)
    rows.append(cell("tea", "fog", 0.5, seed=1, reliability=bad))  # begun, and not finished
    claim = claim_of(rows, EXPECTED, "CIFAR-10-C")
    assert "tea 0.00" in claim.here
    assert "1 seed;" in claim.origin


def test_where_whole_sets_are_not_finished_a_part_of_them_counts() -> None:
    rows = grid(ten(0.9), limit=2000, n=2000) + grid({"source": 0.5, "tea": 0.6})
    claim = claim_of(rows, FIRST, AT_5)
    assert (claim.verdict, claim.on) == (HOLDS, f"{AT_5} (first 2,000 images)")


def test_every_training_has_its_own_verdict() -> None:
    good, bad, begun = ({"weights_sha256": letter * 64} for letter in "abc")
    rows = grid(ten(0.9), **good) + grid(ten(0.6), limit=2000, n=2000, **bad) + grid({"source": 0.5}, **begun)
    verdicts = [(c.verdict, c.on) for c in across(build(rows)) if c.text == FIRST and c.where == AT_5]
    a, b = f"{AT_5} · source model {'a' * 12}", f"{AT_5} · source model {'b' * 12} (first 2,000 images)"
    assert sorted(verdicts) == sorted([(HOLDS, a), (FAILS, b)])  # and nothing of the one that was only begun
    assert claim_of(grid(ten(0.9), **good) + grid({"source": 0.5}, **begun), FIRST, AT_5).on == a  # there is another
    assert claim_of(grid(ten(0.9), **good), FIRST, AT_5).on == AT_5


def test_a_measurement_that_is_no_number_decides_nothing() -> None:
    assert Measured(math.nan, 0.1).side == 0
    assert accuracy({("fog", 5): [cell("tea", "fog", math.nan)]}) is None
