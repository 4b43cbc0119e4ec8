"""Try a model on images it has not met before, and say what is wrong with either."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from steep.core.classifier import Classifier
from steep.core.io import input_scale
from steep.core.io.feed import PERMUTE, channels_last
from steep.errors import InputError, SteepWarning

FLAT = 1e-2  # how far half precision takes the sum of a softmax from one


@torch.no_grad()
def probe_forward(x: Tensor, model: Classifier) -> None:
    """Run a model once on images of a new shape: what it cannot take is refused before anything has changed.

    Warns of images whose scale is not the one the model was trained on.
    """
    before = model.snapshot()
    try:
        with explain_forward_error(x):
            with model.uncompiled(), input_scale.ScaleProbe(model) as probe:
                logits = model(x)
            if len(logits) != len(x):
                raise InputError(f"model output: expected one row of logits per image, got {len(logits)} for {len(x)}")
            _check_logits(logits)
            input_scale.check(x, model, probe)
    finally:
        model.restore(before)  # a model may count its calls


@contextmanager
def explain_forward_error(x: Tensor) -> Iterator[None]:
    """Turn an error of a model's layers into one that names the shape of the batch."""
    try:
        yield
    except (InputError, torch.cuda.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        hint = f". Channels last? {PERMUTE}" if channels_last(x.shape) else ""
        raise InputError(
            f"images: the model cannot take a batch of shape {tuple(x.shape)} (B, C, H, W): {error}{hint}"
        ) from error


def _check_logits(logits: Tensor) -> None:
    """Warn of a model that ends in a softmax: its energy is the same for every image, and nothing can be learnt."""
    if logits.shape[1] < 2 or len(logits) < 4:  # of a few images chance alone may do it
        return
    sums = logits.sum(dim=1) if bool((logits >= 0).all()) else logits.logsumexp(dim=1) + 1
    if bool((sums - 1).abs().max() < FLAT):
        warnings.warn(
            "model output: these are probabilities, or their logarithms, not logits, and energies of them say nothing. "
            "Give the model without its last softmax",
            SteepWarning,
            stacklevel=4,
        )
