"""How well a score tells images the model knows from those it does not (Hendrycks & Gimpel, ICLR 2017).

The energy is such a score (Liu et al., NeurIPS 2020): low for what the model knows, high for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steep.errors import InputError
from steep.metrics.inputs import check_tensor

ACCEPTED = 0.95  # share of known images that must pass, for FPR95; asked for up to float32's rounding


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How well known and unknown images are told apart.

    `auroc` is the chance that an unknown image has the higher score: 1 is perfect, 0.5 is guessing. `fpr95` is the
    share of unknown images that still pass where 95 % of the known ones do: 0 is perfect.
    """

    auroc: float
    fpr95: float
    known: int
    unknown: int


def detection(known: Tensor, unknown: Tensor) -> Detection:
    """Compare the scores of known images (N,) with those of unknown ones (M,); unknown ones should score higher.

    >>> import steep
    >>> sure, unsure = torch.tensor([[9.0, 0.0], [0.0, 8.0]]), torch.tensor([[0.5, 0.0], [0.0, 0.1]])
    >>> detection(steep.energy(sure), steep.energy(unsure))
    Detection(auroc=1.0, fpr95=0.0, known=2, unknown=2)
    """
    # Seconds to import, and only this function needs it.
    from torchmetrics.functional.classification import binary_auroc, binary_roc

    for name, scores in (("known", known), ("unknown", unknown)):
        check_tensor(name, scores)
        if scores.ndim != 1 or not len(scores) or not scores.is_floating_point():
            raise InputError(f"{name}: expected scores (N,), one for each image, got {tuple(scores.shape)}")
        if not bool(scores.isfinite().all()):
            raise InputError(f"{name}: expected finite scores, got {int((~scores.isfinite()).sum())} that are not")
    scores = torch.cat([known.detach().cpu(), unknown.detach().cpu()]).double()
    # Ranks in [0, 1], equal for equal scores: torchmetrics puts other scores through a sigmoid, which makes all
    # energies beyond −17 the same number.
    values, rank = torch.unique(scores, return_inverse=True)
    accepted = 1 - rank.double() / max(1, len(values) - 1)
    is_known = torch.cat([torch.ones(len(known)), torch.zeros(len(unknown))]).long()
    passed_unknown, passed_known, _ = binary_roc(accepted, is_known)
    return Detection(
        auroc=float(binary_auroc(accepted, is_known)),
        fpr95=float(passed_unknown[passed_known >= ACCEPTED - 1e-6].min()),
        known=len(known),
        unknown=len(unknown),
    )
