"""Classifiers for small images, their checkpoints, and input normalisation that travels with a model.

>>> import torch, steep
>>> model = steep.models.build("wrn-16-4", num_classes=10)
>>> model(torch.rand(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from steep.models import checkpoints
from steep.models.normalisation import Normalized, normalized
from steep.models.registry import MODELS, build

__all__ = ["MODELS", "Normalized", "build", "checkpoints", "normalized"]
