"""Does low energy mean few errors? Error rate by energy, and loss against energy with one point for each shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steep.analysis.cells import answers
from steep.analysis.ranks import spearman
from steep.analysis.spec import Analysis, Tell, flat, lines
from steep.bench.measure import mean_energy, metrics
from steep.bench.rows import Row
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.constraints import Real
from steep.core.losses import energy
from steep.data import ImageSet


def measure(
    adapter: Adapter,
    cell: Cell,
    images: ImageSet,
    device: torch.device,
    *,
    folder: Path,
    options: Mapping[str, Any],
    tell: Tell,
) -> dict[str, Any]:
    """Answer the whole set, and sort its images into groups of equal width in energy."""
    logits, labels = answers(adapter, cell, images, device, tell)
    by_energy = groups(logits, labels, options["width"])
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
    found = []
    for row in stored:
        of = ("n", "energy", "loss", "error", "accuracy", "nonfinite")
        found.append(flat("energy-error", row, part="shift", **{name: row[name] for name in of}))
        found += [
            flat(
                "energy-error",
                row,
                part="group",
                energy_low=group["low"],
                energy_high=group["high"],
                n=group["n"],
                wrong=group["wrong"],
            )
            for group in row["groups"]
        ]
    return found


def summary(found: Sequence[Row]) -> list[str]:
    """Say how closely loss follows energy over the shifts."""
    told = []
    for name, own in lines(found):
        points = [row for row in own if row["part"] == "shift"]
        rank = spearman([row["energy"] for row in points], [row["loss"] for row in points])
        told.append(f"{name}: rank correlation of mean energy and mean loss {rank:.2f} over {len(points)} shifts")
    return told


ANALYSIS = Analysis(
    name="energy-error",
    about="error rate by energy, and loss against energy with one point for each shift",
    recipe="analyze-energy-error",
    measure=measure,
    rows=rows,
    summary=summary,
    options={"width": (0.5, Real(above=0))},  # of an energy group, in nats
)
