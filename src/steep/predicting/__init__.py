"""Predicting: your model, your weights, your pictures, adapted while they are answered."""

from steep.models.loading import LoadedModel
from steep.predicting.pictures import Pictures, open_pictures
from steep.predicting.run import Predictions, PredictionStopped, load_model, merged_model, ood_detection, predict
from steep.predicting.table import Row, write_table

__all__ = [
    "LoadedModel",
    "Pictures",
    "PredictionStopped",
    "Predictions",
    "Row",
    "load_model",
    "merged_model",
    "ood_detection",
    "open_pictures",
    "predict",
    "write_table",
]
