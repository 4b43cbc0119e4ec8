"""Numbers about predictions: accuracy, corruption error, calibration and detection of the unknown.

>>> import torch, steep
>>> steep.metrics.accuracy(torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 0]))
0.5
"""

from steep.metrics.accuracy import SeedSummary, accuracy, over_seeds
from steep.metrics.calibration import (
    Reliability,
    brier_score,
    expected_calibration_error,
    maximum_calibration_error,
    negative_log_likelihood,
    reliability,
)
from steep.metrics.corruption_error import ErrorTable, average_accuracy, corruption_errors, mean_corruption_error
from steep.metrics.ood import Detection, detection

__all__ = [
    "Detection",
    "ErrorTable",
    "Reliability",
    "SeedSummary",
    "accuracy",
    "average_accuracy",
    "brier_score",
    "corruption_errors",
    "detection",
    "expected_calibration_error",
    "maximum_calibration_error",
    "mean_corruption_error",
    "negative_log_likelihood",
    "over_seeds",
    "reliability",
]
