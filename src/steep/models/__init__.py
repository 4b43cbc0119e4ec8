"""Classifiers for small images, their checkpoints, and input normalisation that travels with a model."""

from steep.models import checkpoints
from steep.models.registry import MODELS, build
from steep.models.wrap import Normalized

__all__ = ["MODELS", "Normalized", "build", "checkpoints"]
