"""What a batch of images must be, and what is done about one that is not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from steep.core.classifier import Classifier
from steep.core.io import input_scale
from steep.errors import InputError, SteepWarning

FLAT = 1e-2  # how far half precision takes the sum of a softmax from one
FAR = 1e3  # images lie in [0, 1], normalised ones within a few units of it: beyond this nothing is an image


def checked(x: Tensor, like: Tensor, *, keep_bad: bool) -> tuple[Tensor, Tensor | None]:
    """Refuse what cannot be adapted on, before anything has changed; bring the rest to the model's device and dtype.

    The second value is None for a batch of good images. With `keep_bad`, one with bad images among them is returned
    with a mask of the good ones instead of being refused.
    """
    if not isinstance(x, Tensor):
        raise InputError(f"images: expected a torch.Tensor (B, C, H, W), got {type(x).__name__}")
    if x.is_meta or x.layout != torch.strided:
        raise InputError(f"images: expected a dense tensor with values, got a {x.device} {x.layout} one")
    if x.ndim not in (4, 5):
        hint = " One image? Give it a batch of its own: x[None]." if x.ndim == 3 else ""
        raise InputError(f"images: expected (B, C, H, W), got {tuple(x.shape)}.{hint}")
    if not x.is_floating_point():
        raise InputError(f"images: expected floating point in [0, 1], got {x.dtype}. Convert first: x.float() / 255.")
    if x.numel() == 0:
        raise InputError(f"images: expected at least one, got the shape {tuple(x.shape)}")
    x = x.detach()
    good = (x.abs() <= FAR).flatten(1).all(dim=1)  # false for NaN too; on the batch's own device, before it moves
    all_good = bool(good.all())
    x = x.to(like.device, like.dtype)
    if x.is_inference():
        x = x.clone()  # autograd cannot save a tensor that was made under inference_mode
    if all_good:
        return x, None
    if not keep_bad:
        raise InputError(
            f"images: expected finite values within ±{FAR:g}, got NaN, Inf or more in {int((~good).sum())} of {len(x)} "
            "images. bad_images='nan' adapts on the others and answers NaN for these."
        )
    return x, good.to(like.device)


def images_of(batch: Any) -> Any:
    """Take the images out of a loader's batch, which may have labels beside them."""
    return batch[0] if isinstance(batch, (tuple, list)) else batch


@torch.no_grad()
def probe_forward(x: Tensor, model: Classifier) -> None:
    """Show the model a new image shape once, so that what it cannot take is refused with nothing changed.

    Images whose scale is not the one the model was trained on are warned about.
    """
    before = model.snapshot()
    try:
        with explain_forward_error(x):
            with model.uncompiled(), input_scale.ScaleProbe(model) as watch:
                logits = model(x)
            if len(logits) != len(x):
                raise InputError(f"model output: expected one row of logits per image, got {len(logits)} for {len(x)}")
            _check_logits(logits)
            input_scale.check(x, model, watch)
    finally:
        model.restore(before)  # a model may count its calls


@contextmanager
def explain_forward_error(x: Tensor) -> Iterator[None]:
    """Say of a batch that a model cannot take it, in place of what its layers say."""
    try:
        yield
    except (InputError, torch.cuda.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise InputError(
            f"images: the model cannot take a batch of shape {tuple(x.shape)} (B, C, H, W): {error}"
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
