"""Numbers about predictions: accuracy, corruption error and calibration, each over a whole test set.

>>> import torch, steep
>>> steep.metrics.accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]))
0.5
"""

from steep.metrics.accuracy import SeedSummary, accuracy, average_accuracy, over_seeds
from steep.metrics.calibration import (
    Reliability,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    reliability,
)
from steep.metrics.corruption_error import corruption_errors, mean_corruption_error
from steep.metrics.inputs import ErrorTable

__all__ = [
    "ErrorTable",
    "Reliability",
    "SeedSummary",
    "accuracy",
    "average_accuracy",
    "brier_score",
    "corruption_errors",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_corruption_error",
    "negative_log_likelihood",
    "over_seeds",
    "reliability",
]
