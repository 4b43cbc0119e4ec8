"""Energy, loss and accuracy on the same images after 0, 1, 2, ... adaptation steps.

Every batch starts from the source model and is stepped on `steps` times; a point is over all images of the set. Step 0
is the adapting model before its first update (batch statistics, where the method uses them), not the source model.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from steep.analysis.spec import Analysis, Run, flat, lines
from steep.bench.measure import mean_energy, metrics
from steep.bench.rows import Row
from steep.methods import SOURCE


def measure(run: Run) -> dict[str, Any]:
    """Step on each batch, from the source model again, and keep every answer on the way."""
    last = 0 if run.cell.method == SOURCE else run.cell.steps
    answers: list[list[Tensor]] = [[] for _ in range(last + 1)]
    labels = []
    source = run.stream()
    for index, (x, y) in enumerate(source):
        run.adapter.reset()
        for step in range(last + 1):  # answered before the update: after s updates, by the model as they left it
            answers[step].append(run.adapter(x))
            run.tell((index + (step + 1) / (last + 1)) / len(source))
        labels.append(y)
    truth = torch.cat(labels).cpu()
    curve = []
    for step, pieces in enumerate(answers):
        logits = torch.cat(pieces).cpu()
        measured = metrics(logits, truth)
        numbers = {name: measured[name] for name in ("n", "loss", "accuracy", "nonfinite")}
        curve.append({"step": step, "energy": mean_energy(logits), **numbers})
    return {"accuracy": curve[-1]["accuracy"], "n": len(truth), "curve": curve}


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each cell and step."""
    return [flat("energy-steps", row, part="step", **point) for row in stored for point in row["curve"]]


def summary(rows: Sequence[Row]) -> list[str]:
    """Say where each method's curve begins and ends, as means over the shifts."""
    sentences = []
    for name, line in lines(rows):
        parts = {}
        for step in (0, max(row["step"] for row in line)):
            end = [row for row in line if row["step"] == step]
            energy, loss, accuracy = (fmean(row[key] for row in end) for key in ("energy", "loss", "accuracy"))
            parts[step] = f"energy {energy:.2f}, loss {loss:.3f}, accuracy {accuracy:.1%} after {step} steps"
        sentences.append(f"{name}: {'; '.join(parts.values())}")
    return sentences


ANALYSIS = Analysis(
    name="energy-steps",
    about="energy, loss and accuracy on the same images over increasing adaptation steps",
    recipe="analyze-energy-steps",
    measure=measure,
    step_by_step=True,
    rows=rows,
    summary=summary,
)
