"""The page "What TEA's samples do": TEA beside energy, which is TEA without its samples, from stored rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

from steep.bench.rows import read, unpacked
from steep.metrics.differences import ERRORS, Measured, drawn, signed

RESULTS = Path(__file__).parents[2] / "results"
WITHOUT = "energy"
PERCENT = "\u00a0%"
LONG = 200_000  # images of the stream that the answer names

Row = Mapping[str, Any]
Cells = Mapping[str, Sequence[Row]]  # rows of the same stream or streams, by label


@dataclass(frozen=True)
class Comparison:
    """The same streams, with samples and without them."""

    stream: str
    model: str
    label: str  # what it is called with samples
    with_samples: Sequence[Row]
    without: Sequence[Row]


@cache
def lines(file: str) -> tuple[Row, ...]:
    """Read the rows of a file, of a bench or of a benchmark."""
    return tuple(json.loads(line) for line in (RESULTS / f"{file}.jsonl").read_text("utf-8").splitlines())


@cache
def bench(file: str, protocol: str = "reset", limit: int | None = None) -> Cells:
    """Read the cells of a bench, by label."""
    by_label: dict[str, list[Row]] = {}
    for row in read(RESULTS / f"{file}.jsonl"):
        spec = row["spec"]
        if (spec["protocol"], spec["limit"], spec["severity"]) == (protocol, limit, 5):
            by_label.setdefault(spec["label"] or spec["method"], []).append(row)
    return by_label


@cache
def benchmark(file: str, protocol: str) -> Cells:
    """Read the rows of benchmarks/samples.py as if they were cells."""
    by_label: dict[str, list[Row]] = {}
    for row in lines(file):
        if row["protocol"] == protocol:
            spec = {"seed": row["seed"], "shift": row["shift"], "sequence": []}
            by_label.setdefault(row["method"], []).append({**row, "spec": spec})
    return by_label


def shifts(rows: Sequence[Row]) -> set[str]:
    """Name the corruptions of some rows."""
    return {row["spec"]["shift"] for row in rows}


def only(rows: Sequence[Row], names: set[str]) -> list[Row]:
    """Keep the rows of some corruptions."""
    return [row for row in rows if row["spec"]["shift"] in names]


def accuracy(rows: Sequence[Row]) -> Measured:
    """Mean accuracy of rows of the same images, in percent: an image is one draw, under however many corruptions."""
    seeds = sorted({row["spec"]["seed"] for row in rows})
    means = [100 * statistics.fmean(row["accuracy"] for row in rows if row["spec"]["seed"] == seed) for seed in seeds]
    images: dict[int, npt.NDArray[np.float64]] = {}
    for row in rows:
        flags = unpacked(row["right"], row["n"])
        assert flags is not None
        sets = len(row["spec"]["sequence"]) or 1
        adds = images.setdefault(row["n"] // sets, np.zeros(row["n"] // sets))
        adds += flags.reshape(sets, -1).sum(axis=0) * 100 / (row["n"] * len(rows))
    spread = statistics.stdev(means) / len(seeds) ** 0.5 if len(seeds) > 1 else 0.0
    by_image = {(str(n),): adds for n, adds in images.items()}
    return Measured(statistics.fmean(means), max(spread, drawn(by_image)), spread, by_image)


def calibration(rows: Sequence[Row]) -> dict[str, float]:
    """ECE in percent by corruption, the mean over seeds; of a stream of several there is one."""
    by_shift: dict[str, list[float]] = {}
    for row in rows:
        by_shift.setdefault(row["spec"]["shift"], []).append(100 * row["ece"])
    return {shift: statistics.fmean(values) for shift, values in by_shift.items()}


def ece_difference(one: Comparison) -> Measured:
    """What samples do to the ECE, in points.

    Its error comes from its spread over corruptions. A single stream has none: there it is that of the difference in
    accuracy, as ECE is confidence less accuracy where a model is too sure in every bin.
    """
    ours, theirs = calibration(one.with_samples), calibration(one.without)
    differences = [ours[shift] - theirs[shift] for shift in ours]
    if len(differences) == 1:
        return Measured(differences[0], (accuracy(one.with_samples) - accuracy(one.without)).error)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return Measured(statistics.fmean(differences), error * student.ppf(0.975, len(differences) - 1) / ERRORS)


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Everything that was measured with samples and without, on the same images."""
    wrn, big, two, small = "WRN-40-2", "WRN-28-10", "WRN-28-10, two views", "ResNet-18-GN, digits"
    cells = bench("samples/cells-cpu", limit=1000)
    with_tea, mirrored = bench("tea-mirrored-2000-h200", limit=2000), bench("leaderboard-h200", limit=2000)
    places: list[tuple[str, str, Cells, Sequence[str], str]] = [
        ("reset", wrn, cells, ("tea-fast", "tea-1-step", "tea-0-steps"), WITHOUT),
        ("reset", big, bench("energy-2000-h200", limit=2000) | with_tea, ("tea",), WITHOUT),
        ("reset", two, mirrored | with_tea, ("tea mirrored", "tea-fast mirrored"), f"{WITHOUT} mirrored"),
        ("label shift", wrn, bench("samples/cells-cpu", "label-shift", 400), ("tea-fast",), WITHOUT),
        ("mixed", wrn, bench("samples/cells-cpu", "mixed", 400), ("tea-fast",), WITHOUT),
        ("continual", wrn, bench("samples/cells-cpu", "continual", 1000), ("tea-fast",), WITHOUT),
        ("reset", small, benchmark("samples/group-norm-cpu", "reset"), ("tea-fast", "tea"), WITHOUT),
        ("continual", small, benchmark("samples/group-norm-cpu", "continual"), ("tea-fast", "tea"), WITHOUT),
    ]
    return tuple(
        Comparison(stream, model, label, cells[label], only(cells[without], shifts(cells[label])))
        for stream, model, cells, labels, without in places
        for label in labels
    )


def interval(difference: Measured) -> str:
    """Write a difference for a cell of a table."""
    digits = 2 if abs(difference.value) < 1 else 1
    low, high = (signed(difference.value + sign * ERRORS * difference.error, digits) for sign in (-1, 1))
    text = f"{signed(difference.value, digits)} ({low} to {high})"
    return f"**{text}**" if difference.side else f"{text}, not significant"


def images_of(one: Comparison) -> str:
    """Say how many images of how many corruptions, and how many seeds."""
    row = one.with_samples[0]
    sets = len(row["spec"]["sequence"]) or len(shifts(one.with_samples))
    seeds = len({row["spec"]["seed"] for row in one.with_samples})
    each = row["n"] // (len(row["spec"]["sequence"]) or 1)
    return f"{sets} × {each:,}" + (f", {seeds} seeds" if seeds > 1 else "")


def compared() -> str:
    """A line for each comparison."""
    heads = (
        "stream",
        "model",
        "images",
        "with samples",
        "accuracy without",
        "samples add",
        "ECE without",
        "samples add",
    )
    table = ["| " + " | ".join(heads) + " |", "|---|---|---|---|---:|---|---:|---|"]
    for one in comparisons():
        without, ece = accuracy(one.without), statistics.fmean(calibration(one.without).values())
        cells = (
            *(one.stream, one.model, images_of(one), one.label.removesuffix(" mirrored"), f"{without.value:.1f}"),
            *(interval(accuracy(one.with_samples) - without), f"{ece:.1f}"),
            interval(ece_difference(one)),
        )
        table.append("| " + " | ".join(cells) + " |")
    return "\n".join(table)


def answer() -> str:
    """Say in two sentences what is known: of streams that are reset, and of others."""
    reset = [one for one in comparisons() if one.stream == "reset"]
    others = [one for one in comparisons() if one.stream != "reset"]
    curves = long_curves("long-stream-cpu", LONG)
    return (
        f"Where the model is reset before each corruption, TEA's samples change {_changes(reset)}. On other streams "
        f"they change {_changes(others)}; over {LONG:,} images of corrupted digits without a reset and without a "
        f"guard `tea` falls from {curves['tea'][0]:.1f} to {curves['tea'][-1]:.1f} %, and "
        f"`energy` goes from {curves[WITHOUT][0]:.1f} to {curves[WITHOUT][-1]:.1f} %."
    ).replace(" %", PERCENT)


def _changes(some: Sequence[Comparison]) -> str:
    gains = [accuracy(one.with_samples) - accuracy(one.without) for one in some]
    return f"accuracy by {_range(gains)} and ECE by {_range([*map(ece_difference, some)])}"


def _range(differences: Sequence[Measured]) -> str:
    values = [difference.value for difference in differences]
    sides = [sum(difference.side == side for difference in differences) for side in (1, -1)]
    counts = f"of {len(values)} comparisons {sides[0]} are significantly above zero and {sides[1]} below"
    return f"{signed(min(values), 1)} to {signed(max(values), 1)} points ({counts})"


def steps() -> str:
    """TEA by its number of Langevin steps on five corruptions: accuracy and ECE of two models."""
    published = [*bench("sensitivity-2000-h200", limit=2000).items(), *bench("cifar10-c-2000-h200", limit=2000).items()]
    names = shifts(published[0][1])
    big = {label: only(rows, names) for label, rows in published}
    small = {label: only(rows, names) for label, rows in bench("samples/cells-cpu", limit=1000).items()}
    counts = (0, 1, 5, 20, 50, 200)
    table = [
        "| model | images | bn | energy | " + " | ".join(f"{count} step{'s' * (count != 1)}" for count in counts) + " |"
    ]
    table.append("|---|---|" + "---:|" * (len(counts) + 2))
    for model, cells, labels in (
        ("WRN-40-2", small, {0: "tea-0-steps", 1: "tea-1-step"}),
        ("WRN-28-10", big, {20: "tea", **{count: f"sgld-steps-{count}" for count in (1, 5, 50, 200)}}),
    ):
        columns = [cells.get(label) for label in ("bn", WITHOUT, *(labels.get(count) for count in counts))]
        numbers = [
            f"{100 * statistics.fmean(row['accuracy'] for row in rows):.1f} / "
            f"{statistics.fmean(calibration(rows).values()):.1f}"
            if rows
            else "–"
            for rows in columns
        ]
        table.append(f"| {model} | {len(names)} × {cells['bn'][0]['n']:,} | " + " | ".join(numbers) + " |")
    return "\n".join(table)


def long_curves(file: str, images: int) -> dict[str, list[float]]:
    """Accuracy in percent by twentieths of a long stream, without a guard."""
    rows = (row for row in lines(file) if (row["guard"], row["images"]) == ("off", images))
    return {row["variant"]: [100 * value for value in row["curve"]] for row in rows}


def long_stream() -> str:
    """Start and end of the long streams, without a guard."""
    names = ("source", "bn", "tent", WITHOUT, "tea", "tea-fast")
    table = ["| images | batch | on | " + " | ".join(names) + " |", "|---:|---:|---|" + "---:|" * len(names)]
    for file in ("long-stream-cpu", "long-stream-h200"):
        device = "an H200" if file.endswith("h200") else "a CPU"
        for images, batch in sorted({(row["images"], row["batch"]) for row in lines(file)}):
            curves = long_curves(file, images)
            cells = [_ends(curves.get(name)) for name in names]
            table.append(f"| {images:,} | {batch:,} | {device} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def _ends(curve: Sequence[float] | None) -> str:
    return f"{curve[0]:.1f}\u00a0→\u00a0{curve[-1]:.1f}" if curve else "–"


def energies() -> str:
    """What happens to energies and parameters, at the end of each stream."""
    heads = [
        "stream",
        "method",
        "drift, %",
        "test images",
        "uniform noise",
        "samples of the source",
        "samples of itself",
    ]
    table = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * 5]
    for protocol in ("reset", "continual"):
        for method, rows in benchmark("samples/energies-cpu", protocol).items():
            counted = rows if protocol == "reset" else rows[-1:]  # a mean over corruptions; the end of the stream
            cells = [f"{100 * statistics.fmean(row['drift'] for row in counted):.1f}"]
            for name in ("images", "noise", "source_samples", "samples"):
                before, after = (statistics.fmean(row[of][name] for row in counted) for of in ("source", "adapted"))
                cells.append(f"{before:.1f} → {after:.1f}".replace("-", "−"))
            table.append(f"| {protocol} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def group_norm() -> str:
    """Accuracy and ECE of a model without BatchNorm."""
    streams = [benchmark("samples/group-norm-cpu", protocol) for protocol in ("reset", "continual")]
    names = list(streams[0])
    table = ["| stream | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for protocol, cells in zip(("reset", "continual"), streams, strict=True):
        values = [
            f"{accuracy(cells[name]).value:.1f} / {statistics.fmean(calibration(cells[name]).values()):.1f}"
            for name in names
        ]
        table.append(f"| {protocol} | " + " | ".join(values) + " |")
    return "\n".join(table)


def pictures() -> str:
    """How far samples are from the test images in mean and covariance."""
    files = {
        "MNIST": "analysis-samples-mnist",
        "MNIST, 200 steps of 0.01 on one batch": "tried/samples-mnist-200-steps",
        "CIFAR-10": "analysis-samples-cifar10",
    }
    heads = ["adapted to", "other test images", "noise", "source", "tent", "tea"]
    table = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 5]
    for title, file in files.items():
        rows = lines(file)
        noise = next(row for row in rows if row["part"] == "chain" and row["step"] == 0)
        by_label = {row["label"]: row for row in rows if row["part"] == "distance"}
        shown = [by_label["real"], noise, *(by_label[name] for name in ("source", "tent", "tea"))]
        cells = [f"{row['mean_distance']:.3f} / {row['covariance_distance']:.3f}" for row in shown]
        table.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(table)
