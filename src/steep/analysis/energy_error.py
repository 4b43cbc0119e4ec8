"""Does low energy mean few errors? Error rate by energy, and loss against energy with one point for each shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steep.analysis.ranks import spearman
from steep.analysis.spec import Analysis, Run, flat, lines
from steep.bench.measure import mean_energy, metrics
from steep.bench.rows import Row
from steep.core.constraints import Real
from steep.core.losses import energy


def measure(run: Run) -> dict[str, Any]:
    """Answer the whole set, and sort its images into groups of equal width in energy."""
    answers, truth = [], []
    source = run.stream()
    for index, (x, y) in enumerate(source, 1):
        answers.append(run.adapter(x))
        truth.append(y)
        run.tell(index / len(source))
    logits, labels = torch.cat(answers).cpu(), torch.cat(truth).cpu()
    by_energy = groups(logits, labels, run.options["width"])
    return {**metrics(logits, labels), "energy": mean_energy(logits), "groups": by_energy}


def groups(logits: Tensor, labels: Tensor, width: float) -> list[dict[str, float]]:
    """Count images and wrong answers by energy, in groups [k · width, (k + 1) · width).

    Answers that are not finite are left out.

    >>> groups(torch.tensor([[0.0, 0.0], [5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 0, 1]), 1.0)
    [{'low': -6.0, 'high': -5.0, 'n': 2, 'wrong': 1}, {'low': -1.0, 'high': 0.0, 'n': 1, 'wrong': 0}]
    """
    good = logits.isfinite().all(dim=1)
    logits, labels = logits[good], labels[good]
    place = (energy(logits).double() / width).floor().long()
    wrong = logits.argmax(dim=1) != labels
    return [
        {
            "low": k * width,
            "high": (k + 1) * width,
            "n": int((place == k).sum()),
            "wrong": int(wrong[place == k].sum()),
        }
        for k in sorted(set(place.tolist()))
    ]


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each shift, and one for each of its energy groups."""
    flat_rows = []
    for row in stored:
        numbers = {name: row[name] for name in ("n", "energy", "loss", "error", "accuracy", "nonfinite")}
        flat_rows.append(flat("energy-error", row, part="shift", **numbers))
        for group in row["groups"]:
            bounds = {"energy_low": group["low"], "energy_high": group["high"]}
            flat_rows.append(flat("energy-error", row, part="group", **bounds, n=group["n"], wrong=group["wrong"]))
    return flat_rows


def summary(rows: Sequence[Row]) -> list[str]:
    """Say how closely loss follows energy over the shifts."""
    sentences = []
    for name, line in lines([row for row in rows if row["part"] == "shift"]):
        rank = spearman([row["energy"] for row in line], [row["loss"] for row in line])
        sentences.append(f"{name}: rank correlation of mean energy and mean loss {rank:.2f} over {len(line)} shifts")
    return sentences


ANALYSIS = Analysis(
    name="energy-error",
    about="error rate by energy, and loss against energy with one point for each shift",
    recipe="analyze-energy-error",
    measure=measure,
    rows=rows,
    summary=summary,
    options={"width": (0.5, Real(above=0))},  # of an energy group, in nats
)
