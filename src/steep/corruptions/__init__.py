"""The 19 corruptions of CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C, batched, on any device.

Hendrycks & Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
ICLR 2019: 15 benchmark corruptions and 4 for validation, at five severities, with the published numbers for 32x32,
64x64 and 224x224 images, and scaled from the first two for other small ones.

    from steep.corruptions import corrupt
    foggy = corrupt(images, "fog", severity=3, seed=0)
"""

from steep.corruptions.apply import corrupt
from steep.corruptions.frost import frost_source
from steep.corruptions.parameters import BENCHMARK, CORRUPTIONS, DETERMINISTIC, EXTRA

__all__ = ["BENCHMARK", "CORRUPTIONS", "DETERMINISTIC", "EXTRA", "corrupt", "frost_source"]
