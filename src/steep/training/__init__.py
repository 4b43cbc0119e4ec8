"""Training: one readable loop that makes source models; recipes decide the rest."""

from steep.training.augment import Draws, crops, draw
from steep.training.loop import Progress, Trained, checkpoint_path, learning_rate, train
from steep.training.run import Plan, plan
from steep.training.spec import TrainingSpec

__all__ = [
    "Draws",
    "Plan",
    "Progress",
    "Trained",
    "TrainingSpec",
    "checkpoint_path",
    "crops",
    "draw",
    "learning_rate",
    "plan",
    "train",
]
