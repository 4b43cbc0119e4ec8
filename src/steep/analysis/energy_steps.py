"""Energy, loss and accuracy on the same images after 0, 1, 2, ... adaptation steps.

Every batch starts from the source model and is stepped on `steps` times; a point is over all images of the set. Step 0
is the adapting model before its first update (batch statistics, where the method uses them), not the source model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steep.analysis.cells import stream
from steep.analysis.spec import Analysis, Tell, flat, lines
from steep.bench.measure import mean_energy, metrics
from steep.bench.rows import Row
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.data import ImageSet
from steep.methods import SOURCE


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
    """Step on each batch, from the source model again, and keep every answer on the way."""
    last = 0 if cell.method == SOURCE else cell.steps
    at: list[list[Tensor]] = [[] for _ in range(last + 1)]
    labels = []
    source = stream(cell, images, device)
    for index, (x, y) in enumerate(source):
        adapter.reset()
        for step in range(last + 1):  # answered before the update: after s updates, by the model as they left it
            at[step].append(adapter(x))
            tell((index + (step + 1) / (last + 1)) / len(source))
        labels.append(y)
    truth = torch.cat(labels).cpu()
    curve = []
    for step, pieces in enumerate(at):
        logits = torch.cat(pieces).cpu()
        measured = metrics(logits, truth)
        numbers = {name: measured[name] for name in ("n", "loss", "accuracy", "nonfinite")}
        curve.append({"step": step, "energy": mean_energy(logits), **numbers})
    return {"accuracy": curve[-1]["accuracy"], "n": len(truth), "curve": curve}


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each cell and step."""
    return [flat("energy-steps", row, part="step", **point) for row in stored for point in row["curve"]]


def summary(found: Sequence[Row]) -> list[str]:
    """Say where each method's curve begins and ends, as means over the shifts."""
    said = []
    for name, own in lines(found):
        ends = [[row for row in own if row["step"] == step] for step in (0, max(row["step"] for row in own))]
        told = [
            f"energy {_mean(end, 'energy'):.2f}, loss {_mean(end, 'loss'):.3f}, accuracy {_mean(end, 'accuracy'):.1%}"
            f" after {end[0]['step']} steps"
            for end in ends
        ]
        said.append(f"{name}: {'; '.join(dict.fromkeys(told))}")
    return said


def _mean(found: Sequence[Row], name: str) -> float:
    return sum(float(row[name]) for row in found) / len(found)


ANALYSIS = Analysis(
    name="energy-steps",
    about="energy, loss and accuracy on the same images over increasing adaptation steps",
    recipe="analyze-energy-steps",
    measure=measure,
    step_by_step=True,
    rows=rows,
    summary=summary,
)
