"""Accuracy, benchmark averages and corruption error, against numbers computed by hand and printed in the paper."""

import math

import numpy as np
import pytest
import torch

from steep import metrics
from steep.errors import InputError
from steep.metrics import (
    SeedSummary,
    accuracy,
    average_accuracy,
    corruption_errors,
    mean_corruption_error,
    over_seeds,
)

# Accuracy (%) of each corruption at severity 5 on CIFAR-10-C, then the average accuracy and mCE (%) that the
# appendix of the TEA paper prints beside them.
SOURCE = [27.68, 34.25, 27.07, 53.01, 45.67, 65.24, 57.99, 74.87, 58.68, 73.98, 90.70, 53.37, 73.39, 41.56, 69.71]
BN = [71.93, 73.88, 63.74, 87.19, 64.72, 85.83, 87.89, 82.73, 82.61, 84.75, 91.61, 87.35, 76.25, 80.33, 72.70]
TENT = [75.20, 76.52, 67.03, 88.00, 68.22, 86.27, 89.24, 84.06, 83.81, 86.30, 92.16, 87.91, 78.01, 82.77, 75.77]
TEA = [78.33, 79.87, 70.94, 88.89, 71.31, 87.87, 89.77, 85.56, 85.29, 87.61, 92.37, 88.98, 79.32, 84.90, 78.99]


def table(accuracies):
    return {f"c{i}": {5: 1 - value / 100} for i, value in enumerate(accuracies)}


@pytest.mark.parametrize(
    ("accuracies", "average", "mce"),
    [(SOURCE, 56.47, 100.00), (BN, 79.56, 52.65), (TENT, 81.41, 48.13), (TEA, 83.33, 43.69)],
    ids=["source", "bn", "tent", "tea"],
)
def test_the_papers_own_rows(accuracies, average, mce):
    # Printed accuracies are rounded to 0.005 %, which moves an mCE by less than 0.02 %.
    assert 100 * average_accuracy(table(accuracies)) == pytest.approx(average, abs=0.011)
    assert 100 * mean_corruption_error(table(accuracies), table(SOURCE)) == pytest.approx(mce, abs=0.02)


ERRORS = {"fog": {1: 0.10, 2: 0.20}, "snow": {1: 0.30, 2: 0.60}}
BASE = {"fog": {1: 0.20, 2: 0.20}, "snow": {1: 0.20, 2: 0.40}}


def test_average_accuracy_by_hand():
    assert average_accuracy(ERRORS) == pytest.approx(1 - 1.2 / 4)


def test_mce_by_hand():
    # fog: 0.3 / 0.4 = 0.75; snow: 0.9 / 0.6 = 1.5; mean 1.125
    assert corruption_errors(ERRORS, BASE) == pytest.approx({"fog": 0.75, "snow": 1.5})
    assert mean_corruption_error(ERRORS, BASE) == pytest.approx(1.125)


def test_mce_sums_over_severities_before_it_divides():
    errors, base = {"fog": {1: 0.1, 5: 0.3}}, {"fog": {1: 0.1, 5: 0.9}}
    assert mean_corruption_error(errors, base) == pytest.approx(0.4)  # the mean of ratios would be 2/3


def test_source_against_itself_is_one():
    assert mean_corruption_error(BASE, BASE) == pytest.approx(1)


def test_order_of_the_tables_does_not_matter():
    shuffled = {"snow": {2: 0.40, 1: 0.20}, "fog": {2: 0.20, 1: 0.20}}
    assert mean_corruption_error(ERRORS, shuffled) == mean_corruption_error(ERRORS, BASE)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"fog": {1: 0.2, 2: 0.2}}, "source: expected the corruptions of errors, got a difference in snow"),
        ({"fog": {1: 0.2}, "snow": {1: 0.2}}, r"source: expected severities \[1, 2\] as in errors, got \[1\]"),
        ({"fog": {1: 0.0, 2: 0.0}, "snow": {1: 0.1, 2: 0.1}}, "some error on every corruption, got none on fog"),
    ],
)
def test_source_that_does_not_match(source, message):
    with pytest.raises(InputError, match=message):
        mean_corruption_error(ERRORS, source)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ({}, "errors: expected at least one corruption"),
        ({"fog": {}}, "errors: expected at least one corruption with at least one severity"),
        ({"fog": {1: 0.1, 2: 0.1}, "snow": {1: 0.1}}, r"errors\['snow'\]: expected severities \[1, 2\] as for 'fog'"),
        ({"fog": {1: 12.5}}, r"errors\['fog'\]\[1\]: .* in \[0, 1\], got 12.5; divide percent by 100"),
        ({"fog": {1: -0.1}}, r"errors\['fog'\]\[1\]: expected an error rate in \[0, 1\], got -0.1$"),
        ({"fog": {1: math.nan}}, r"errors\['fog'\]\[1\]: expected an error rate in \[0, 1\], got nan$"),
        ({"fog": {1: "0.1"}}, r"errors\['fog'\]\[1\]: expected an error rate in \[0, 1\], got '0.1'$"),
        ({"fog": {1: None}}, r"errors\['fog'\]\[1\]: expected an error rate in \[0, 1\], got None$"),
        (None, "errors: expected corruption → severity → error, .*got None"),
        ([0.1], r"errors: expected corruption → severity → error, .*got \[0.1\]"),
        ({"fog": 0.1}, "errors: expected corruption → severity → error, .*got {'fog': 0.1}"),
    ],
)
def test_bad_error_tables(errors, message):
    with pytest.raises(InputError, match=message):
        average_accuracy(errors)


def test_accuracy_by_hand():
    logits = torch.tensor([[9.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 5.0, 2.0], [-3.0, -2.0, -1.0]])
    assert accuracy(logits, torch.tensor([0, 2, 0, 2])) == 0.75
    assert accuracy(logits.bfloat16(), torch.tensor([0, 2, 0, 2], dtype=torch.uint8)) == 0.75


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(2, 3, 1), torch.zeros(2).long(), r"logits: expected .*\(N, K\).*, got \(2, 3, 1\)"),
        (torch.zeros(0, 3), torch.zeros(0).long(), r"N ≥ 1.*got \(0, 3\)"),
        (torch.zeros(2, 1), torch.zeros(2).long(), r"K ≥ 2.*got \(2, 1\)"),
        (torch.zeros(2, 3).long(), torch.zeros(2).long(), "floating point.*got .*int64"),
        (torch.zeros(2, 3), torch.zeros(3).long(), r"labels: expected whole numbers \(2,\).*got \(3,\)"),
        (torch.zeros(2, 3), torch.zeros(2), "labels: expected whole numbers .*got .*float32"),
        (torch.zeros(2, 3), torch.zeros(2).bool(), "labels: expected whole numbers .*got .*bool"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "labels: expected classes 0 to 2, got 0 to 3"),
        (torch.zeros(2, 3), torch.tensor([-1, 0]), "labels: expected classes 0 to 2, got -1 to 0"),
        (torch.tensor([[0.0, math.nan], [0.0, 1.0]]), torch.zeros(2).long(), "NaN or infinity in 1 of 2 rows"),
        (np.zeros((2, 3)), torch.zeros(2).long(), r"logits: .*Tensor, got ndarray. Give torch.as_tensor\(logits\)"),
        (torch.zeros(2, 3), np.zeros(2, int), r"labels: .*Tensor, got ndarray. Give torch.as_tensor\(labels\)"),
        (torch.zeros(2, 3), [0, 1], "labels: expected a torch.Tensor, got list"),
        (None, torch.zeros(2).long(), "logits: expected a torch.Tensor, got NoneType"),
        (torch.zeros(2, 3, device="meta"), torch.zeros(2).long(), "logits: expected a dense tensor with values, got"),
        (torch.zeros(2, 3).to_sparse(), torch.zeros(2).long(), "logits: expected a dense tensor .*sparse_coo"),
    ],
)
def test_bad_predictions(logits, labels, message):
    with pytest.raises(InputError, match=message):
        accuracy(logits, labels)


def test_seeds_by_hand():
    # mean 83.3, squared deviations .01 + .01 + .04 + .04 + 0 = .1, sample variance .1 / 4
    summary = over_seeds([83.2, 83.4, 83.1, 83.5, 83.3])
    assert summary.mean == pytest.approx(83.3)
    assert summary.sd == pytest.approx(math.sqrt(0.025))
    assert summary.n == 5
    assert str(summary) == "83.30 ± 0.16"


def test_one_seed_has_no_deviation():
    assert over_seeds([0.5]) == SeedSummary(mean=0.5, sd=None, n=1)
    assert over_seeds(iter([2.0, 2.0])).sd == 0


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_bad_seeds(values):
    with pytest.raises(InputError, match="values: expected at least one finite number, got"):
        over_seeds(values)


@pytest.mark.parametrize("values", [None, 5, [None], "abc"])
def test_seeds_that_are_no_numbers(values):
    with pytest.raises(InputError, match=r"values: expected numbers, one for each seed, got"):
        over_seeds(values)


def test_a_class_that_is_ruled_out_changes_nothing() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(50, 4), torch.randint(4, (50,))
    ruled_out = torch.cat([logits, torch.full((50, 1), -torch.inf)], dim=1)
    for measure in (metrics.accuracy, metrics.negative_log_likelihood, metrics.brier_score):
        assert measure(ruled_out, labels) == pytest.approx(measure(logits, labels))
    with_it, without = (metrics.reliability(x, labels, bins=15) for x in (ruled_out, logits))
    assert with_it.ece == pytest.approx(without.ece)
    with pytest.raises(InputError, match="NaN or infinity in 1 of 2 rows"):
        metrics.accuracy(torch.tensor([[0.0, 1.0], [-torch.inf, -torch.inf]]), torch.tensor([0, 1]))
