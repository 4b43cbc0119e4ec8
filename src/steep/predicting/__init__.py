"""Predicting: your model, your weights, your pictures, adapted while they are answered."""

from steep.predicting.fixed import fixed
from steep.predicting.models import Loaded, load_model
from steep.predicting.pictures import Pictures, open_pictures
from steep.predicting.run import Predictions, predict
from steep.predicting.strangers import told_apart
from steep.predicting.table import Row, write_table

__all__ = [
    "Loaded",
    "Pictures",
    "Predictions",
    "Row",
    "fixed",
    "load_model",
    "open_pictures",
    "predict",
    "told_apart",
    "write_table",
]
