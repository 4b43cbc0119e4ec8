"""The models that `steep predict` takes."""

from __future__ import annotations

import os
from typing import Any

from steep.models import loading
from steep.models.loading import LoadedModel
from steep.training.weights import weights_file


def load_model(name: str, *, weights: str | os.PathLike[str] | None = None, **options: Any) -> LoadedModel:
    """Load a model as `steep.models.loading.load_model` does; `weights` may also be a name, as the bench finds them."""
    return loading.load_model(name, weights=None if weights is None else weights_file(weights), **options)
