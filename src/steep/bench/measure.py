"""From the logits and labels of a whole set to the numbers of a row."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from steep.core.losses import energy
from steep.metrics import accuracy, brier_score, negative_log_likelihood, reliability
from steep.metrics.inputs import are_answers

DIAGRAM_BINS = 10  # of a reliability diagram (TEA paper, section on calibration)
ERROR_BINS = 15  # of ECE and MCE (torchmetrics' default; the paper's code takes 10 and averages over batches)


def metrics(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Measure a whole set, logits (N, K), at once: never a mean over batches.

    A row of logits with NaN or infinity in it counts as a wrong answer, and makes every number that needs
    probabilities NaN; `nonfinite` says how many there are. −inf beside finite logits only rules a class out.
    """
    numbers = dict.fromkeys(("loss", "nll", "ece", "mce", "brier"), math.nan)
    bad = int((~are_answers(logits)).sum())
    if bad:
        right = int(correct(logits, labels).sum()) / len(labels)
    else:
        right = accuracy(logits, labels)
        bars = reliability(logits, labels, bins=ERROR_BINS)
        numbers |= {"ece": bars.ece, "mce": bars.mce, "brier": brier_score(logits, labels)}
        # the same number under the two names people look for
        numbers["loss"] = numbers["nll"] = negative_log_likelihood(logits, labels)
    return {"n": len(labels), "accuracy": right, "error": 1 - right, **numbers, "nonfinite": bad}


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Say of each image whether it was answered right, (N,); an answer that is no number is wrong."""
    return (logits.argmax(dim=1) == labels) & are_answers(logits)


def diagrams(logits: Tensor, labels: Tensor) -> dict[str, Any]:
    """Give what a reliability diagram and a per-class table are drawn from, and bins whose sums give a pooled ECE."""
    classes = logits.shape[1]
    predicted = logits.argmax(dim=1)
    per_class = {
        "count": labels.bincount(minlength=classes).tolist(),
        "correct": labels[correct(logits, labels)].bincount(minlength=classes).tolist(),
        "predicted": predicted.bincount(minlength=classes).tolist(),
    }
    bars: dict[str, dict[str, list[float]] | None] = {"reliability": None, "calibration": None}
    if bool(are_answers(logits).all()):
        for name, bins in (("reliability", DIAGRAM_BINS), ("calibration", ERROR_BINS)):
            binned = reliability(logits, labels, bins=bins)
            bars[name] = {column: list(getattr(binned, column)) for column in ("counts", "confidence", "accuracy")}
    return {"per_class": per_class, **bars}


def mean_energy(logits: Tensor) -> float:
    """Mean over the set of E(x) = −log Σ exp f(x), summed in float64."""
    return float(energy(logits).double().mean())
