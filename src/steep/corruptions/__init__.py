"""The 19 corruptions of the CIFAR-10-C family, batched, on any device.

Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019: 15 benchmark corruptions and 4 for validation, at five severities, for 32x32 and 64x64 images, and
scaled from these to any other size.

    from steep.corruptions import corrupt
    foggy = corrupt(images, "fog", severity=3, seed=0)
"""

from steep.corruptions.apply import corrupt
from steep.corruptions.frost import frost_source
from steep.corruptions.parameters import BENCHMARK, CORRUPTIONS, DETERMINISTIC, EXTRA

__all__ = ["BENCHMARK", "CORRUPTIONS", "DETERMINISTIC", "EXTRA", "corrupt", "frost_source"]
