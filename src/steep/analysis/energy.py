"""What energy has to do with errors: three analyses of the paper, and Spearman's rank correlation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from steep.analysis.cells import Analysis, MeasuringAnalysis, Run, images_of, lines
from steep.bench.measure import mean_energy, metrics
from steep.bench.rows import Row
from steep.core.constraints import Real
from steep.core.losses import energy
from steep.methods import is_baseline

EVERYTHING = "all"
"""The `shift` of the rank correlation over all shifts and severities."""


class EnergyError(MeasuringAnalysis):
    """Does low energy mean few errors? Error rate by energy, and loss against energy with one point for each shift."""

    name = "energy-error"
    recipe = "analyze-energy-error"
    options: ClassVar = {"width": (0.5, Real(above=0))}  # of an energy group, in nats

    def measure(self, run: Run) -> dict[str, Any]:
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

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """One row for each shift, and one for each of its energy groups."""
        flat_rows = []
        for row in stored:
            numbers = {name: row[name] for name in ("n", "energy", "loss", "error", "accuracy", "nonfinite")}
            flat_rows.append(self.flat(row, part="shift", **numbers))
            for group in row["groups"]:
                bounds = {"energy_low": group["low"], "energy_high": group["high"]}
                flat_rows.append(self.flat(row, part="group", **bounds, n=group["n"], wrong=group["wrong"]))
        return flat_rows

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Say how closely loss follows energy over the shifts."""
        sentences = []
        for name, line in lines(rows, "shift"):
            rank = spearman([row["energy"] for row in line], [row["loss"] for row in line])
            rank_of = f"rank correlation of mean energy and mean loss {rank:.2f} over {len(line)} shifts"
            sentences.append(f"{name}: {rank_of}")
        return sentences


def groups(logits: Tensor, labels: Tensor, width: float) -> list[dict[str, float]]:
    """Count images and wrong answers by energy, in groups [k · width, (k + 1) · width).

    Answers that are not finite are left out.

    >>> groups(torch.tensor([[0.0, 0.0], [5.0, 0.0], [5.0, 0.0]]), torch.tensor([0, 0, 1]), 1.0)
    [{'low': -6.0, 'high': -5.0, 'n': 2, 'wrong': 1}, {'low': -1.0, 'high': 0.0, 'n': 1, 'wrong': 0}]
    """
    good = logits.isfinite().all(dim=1)
    logits, labels = logits[good], labels[good]
    place = (energy(logits).double() / width).floor().long()
    every, group, counts = np.unique(place.numpy(), return_inverse=True, return_counts=True)
    wrong = np.bincount(group[(logits.argmax(dim=1) != labels).numpy()], minlength=len(every))
    columns = zip(every.tolist(), counts.tolist(), wrong.tolist(), strict=True)
    return [{"low": k * width, "high": (k + 1) * width, "n": n, "wrong": w} for k, n, w in columns]


class EnergySteps(MeasuringAnalysis):
    """Energy, loss and accuracy on the same images after 0, 1, 2, ... adaptation steps.

    Every batch starts from the source model and is stepped on `steps` times; a point is over all images of the set.
    Step 0 is the adapting model before its first update (batch statistics, where the method uses them), not the source
    model.
    """

    name = "energy-steps"
    recipe = "analyze-energy-steps"
    step_by_step = True

    def measure(self, run: Run) -> dict[str, Any]:
        """Step on each batch, from the source model again, and keep every answer on the way."""
        last = 0 if run.adapter.method.baseline else run.cell.steps
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

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """One row for each cell and step."""
        return [self.flat(row, part="step", **point) for row in stored for point in row["curve"]]

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Say where each method's curve begins and ends, as means over the shifts."""
        sentences = []
        for name, line in lines(rows):
            ends = []
            for step in sorted({0, max(row["step"] for row in line)}):
                end = [row for row in line if row["step"] == step]
                energy, loss, accuracy = (fmean(row[key] for row in end) for key in ("energy", "loss", "accuracy"))
                ends.append(f"energy {energy:.2f}, loss {loss:.3f}, accuracy {accuracy:.1%} after {step} steps")
            sentences.append(f"{name}: {'; '.join(ends)}")
        return sentences


class EnergySeverity(Analysis):
    """Does a greater fall in energy go with a greater gain in accuracy? Both against severity, for each corruption."""

    name = "energy-severity"
    recipe = "analyze-energy-severity"

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """One row for each cell that adapts, beside the source model on the same images; then the rank correlations.

        Where no source model was run on the same images, `accuracy_source` and `gain` are None.
        """
        sources = {images_of(row["spec"]): row["accuracy"] for row in stored if is_baseline(row["spec"]["method"])}
        points = []
        for row in stored:
            if is_baseline(row["spec"]["method"]):
                continue
            source = sources.get(images_of(row["spec"]))
            values = {name: row[name] for name in ("n", "accuracy", "energy_before", "energy_after")}
            values["energy_reduction"] = row["energy_before"] - row["energy_after"]
            values |= {"accuracy_source": source, "gain": None if source is None else row["accuracy"] - source}
            points.append(self.flat(row, part="point", **values))
        correlations = []
        for _, line in lines(points):
            about = {name: value for name, value in line[0].items() if name not in values}
            for shift in (EVERYTHING, *dict.fromkeys(row["shift"] for row in line)):
                same = [row for row in line if shift in (EVERYTHING, row["shift"])]
                known = [row for row in same if row["gain"] is not None and math.isfinite(row["energy_reduction"])]
                rank = spearman([row["energy_reduction"] for row in known], [row["gain"] for row in known])
                of = {"part": "correlation", "shift": shift, "severity": None, "seed": None}
                correlations.append({**about, **of, "spearman": rank, "pairs": len(known)})
        return points + correlations

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Print the rank correlations, and what is missing for them."""
        sentences = []
        for name, line in lines(rows, "correlation"):
            for row in line:
                if row["shift"] == EVERYTHING or row["pairs"] >= 3:
                    shifts = "all shifts" if row["shift"] == EVERYTHING else row["shift"]
                    rank = f"{row['spearman']:.2f} over {row['pairs']} points"
                    sentences.append(f"{name}, {shifts}: rank correlation of energy reduction and accuracy gain {rank}")
        if alone := sum(row["part"] == "point" and row["gain"] is None for row in rows):
            sentences.append(f"{alone} cells have no source model on the same images: no gain is known for them")
        return sentences


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlate ranks, ties sharing their mean rank. NaN for fewer than 3 pairs or where one side never changes.

    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(first) < 3 or not np.isfinite([*first, *second]).all():
        return math.nan
    with np.errstate(invalid="ignore"):  # 0 / 0: one side never changes
        return round(float(np.corrcoef(_ranks(first), _ranks(second))[0, 1]), 12)


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, place, count = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    mean: NDArray[np.float64] = (np.cumsum(count) - (count - 1) / 2)[place]
    return mean
