"""Calibration against numbers computed by hand, and the pitfalls of pooling, saturation and logits in [0, 1]."""

import math

import pytest
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from steep.errors import InputError
from steep.metrics import (
    Reliability,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    reliability,
)


def sure(*confidences):
    """Logits of two classes in which class 0 has the given probabilities."""
    p = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([p, 1 - p], 1).log()


# Ten bins. 0.92 and 0.98 in the last: mean 0.95, both right, gap 0.05. 0.72, 0.74, 0.79 in the eighth: mean 0.75, one
# right of three, gap 5/12. 0.61 in the seventh, wrong: gap 0.61.
LOGITS = sure(0.92, 0.98, 0.72, 0.74, 0.79, 0.61)
LABELS = torch.tensor([0, 0, 0, 1, 1, 1])
ECE = (2 * 0.05 + 3 * (0.75 - 1 / 3) + 0.61) / 6


def test_ece_and_mce_by_hand():
    assert expected_calibration_error(LOGITS, LABELS, bins=10) == pytest.approx(ECE, abs=1e-6)
    assert maximum_calibration_error(LOGITS, LABELS, bins=10) == pytest.approx(0.61, abs=1e-6)


def test_reliability_by_hand():
    bars = reliability(LOGITS, LABELS, bins=10)
    assert bars.counts == (0, 0, 0, 0, 0, 0, 1, 3, 0, 2)
    assert bars.edges == tuple(i / 10 for i in range(11))
    assert bars.confidence == pytest.approx((0, 0, 0, 0, 0, 0, 0.61, 0.75, 0, 0.95), abs=1e-6)
    assert bars.accuracy == pytest.approx((0, 0, 0, 0, 0, 0, 0, 1 / 3, 0, 1))
    assert (bars.ece, bars.mce) == pytest.approx((ECE, 0.61), abs=1e-6)


def test_one_bin_is_mean_confidence_against_accuracy():
    gap = (0.92 + 0.98 + 0.72 + 0.74 + 0.79 + 0.61) / 6 - 0.5
    assert expected_calibration_error(LOGITS, LABELS, bins=1) == pytest.approx(gap, abs=1e-6)
    assert maximum_calibration_error(LOGITS, LABELS, bins=1) == pytest.approx(gap, abs=1e-6)


def test_pooled_is_not_the_mean_over_batches():
    # Both rows 75 % sure, one right: pooled gap 0.25; batches of one have gaps 0.25 and 0.75.
    logits, labels = sure(0.75, 0.75), torch.tensor([0, 1])
    assert expected_calibration_error(logits, labels) == pytest.approx(0.25, abs=1e-6)
    alone = [expected_calibration_error(logits[i : i + 1], labels[i : i + 1]) for i in range(2)]
    assert sum(alone) / 2 == pytest.approx(0.5, abs=1e-6)


def test_logits_inside_the_unit_interval_are_still_logits():
    logits, labels = torch.tensor([[0.0, 1.0]]), torch.tensor([1])
    assert expected_calibration_error(logits, labels) == pytest.approx(1 - 1 / (1 + math.exp(-1)), abs=1e-6)


def test_saturated_confidence_falls_in_the_last_bin():
    # One row at exactly 1 and wrong, one at 0.99 and right: one bin, accuracy 0.5, mean confidence 0.995.
    logits, labels = torch.cat([torch.tensor([[200.0, -200.0]]), sure(0.99)]), torch.tensor([1, 0])
    assert reliability(logits, labels, bins=10).counts[-1] == 2
    assert expected_calibration_error(logits, labels, bins=10) == pytest.approx(0.495, abs=1e-6)
    assert maximum_calibration_error(logits, labels, bins=10) == pytest.approx(0.495, abs=1e-6)


@pytest.mark.parametrize("bins", [1, 7, 15, 20])
@pytest.mark.parametrize("classes", [2, 10, 200])
def test_agrees_with_torchmetrics(bins, classes):
    torch.manual_seed(classes)
    logits, labels = 2 * torch.randn(3000, classes), torch.randint(classes, (3000,))
    bars = reliability(logits, labels, bins=bins)
    mean, most = (
        float(multiclass_calibration_error(logits.softmax(1), labels, classes, n_bins=bins, norm=norm))
        for norm in ("l1", "max")
    )
    assert expected_calibration_error(logits, labels, bins=bins) == pytest.approx(mean, abs=1e-5)
    assert maximum_calibration_error(logits, labels, bins=bins) == pytest.approx(most, abs=1e-4)
    assert (bars.ece, bars.mce) == (pytest.approx(mean, abs=1e-5), pytest.approx(most, abs=1e-4))
    assert sum(bars.counts) == 3000


def test_large_sets_keep_their_digits_in_the_bins():
    # 300,000 confidences of 0.9997, all right: in float32 sums the gap of 0.0003 drowns.
    logits = sure(0.9997).expand(300_000, 2)
    labels = torch.zeros(300_000, dtype=torch.long)
    assert reliability(logits, labels).ece == pytest.approx(3e-4, abs=1e-6)
    assert expected_calibration_error(logits, labels) == pytest.approx(3e-4, abs=1e-6)


def test_brier_by_hand():
    # Row 0: (0.2² + 0.2²) = 0.08; row 1: 0.8² + 0.8² = 1.28.
    assert brier_score(sure(0.8, 0.8), torch.tensor([0, 1])) == pytest.approx(0.68)
    assert brier_score(torch.tensor([[1e4, -1e4]]), torch.tensor([1])) == pytest.approx(2.0)
    assert brier_score(torch.zeros(1, 4), torch.tensor([2])) == pytest.approx(0.75**2 + 3 * 0.25**2)


def test_nll_by_hand():
    expected = -(math.log(0.8) + math.log(0.2)) / 2
    assert negative_log_likelihood(sure(0.8, 0.8), torch.tensor([0, 1])) == pytest.approx(expected)
    # Far beyond what a float32 softmax can tell from zero.
    assert negative_log_likelihood(torch.tensor([[1e4, -1e4]]), torch.tensor([1])) == pytest.approx(2e4)


@pytest.mark.parametrize("metric", [brier_score, negative_log_likelihood, expected_calibration_error])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_logits_are_summed_in_high(metric, dtype):
    torch.manual_seed(0)
    logits, labels = torch.randn(500, 5).to(dtype), torch.randint(5, (500,))
    assert metric(logits, labels) == pytest.approx(metric(logits.double(), labels), abs=1e-7)


@pytest.mark.parametrize("metric", [expected_calibration_error, maximum_calibration_error, reliability])
@pytest.mark.parametrize("bins", [0, -1, 2.5, True])
def test_bad_bins(metric, bins):
    with pytest.raises(InputError, match="bins: expected a whole number of at least 1, got"):
        metric(LOGITS, LABELS, bins=bins)


@pytest.mark.parametrize(
    "metric",
    [expected_calibration_error, maximum_calibration_error, reliability, brier_score, negative_log_likelihood],
)
def test_bad_predictions(metric):
    with pytest.raises(InputError, match="labels: expected classes 0 to 1, got 0 to 2"):
        metric(sure(0.5, 0.5), torch.tensor([0, 2]))
    with pytest.raises(InputError, match="logits: expected finite numbers"):
        metric(torch.tensor([[math.inf, 0.0]]), torch.tensor([0]))


def test_record_is_frozen():
    bars = Reliability(edges=(0.0, 1.0), counts=(1,), confidence=(1.0,), accuracy=(1.0,))
    with pytest.raises(AttributeError):
        bars.counts = (2,)  # type: ignore[misc]
