"""The tables of the page "Choose a method": advice for common cases, and the numbers it rests on, from stored rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import method_page
import real_pictures_table as pictures
import safety_table
import streams_table
from steep.bench.rows import read
from steep.methods import METHODS, SOURCE
from steep.report.tables import build

RESULTS = Path(__file__).parents[2] / "results"
GRID, FAST = RESULTS / "cifar10-c-severity-5.jsonl", RESULTS / "tea-fast-h200.jsonl"
LONG = RESULTS / "long-stream-h200.jsonl"
PERCENT = "\u00a0%"  # stays on the line of its number
SHIFTED = "natural-shift.md#what-to-expect"
PICTURES = (  # at 224 pixels
    ("a thousand classes, batches of 64", pictures.BENCH, "infuse.md#with-hundreds-of-classes"),
    ("pictures of another camera or catalogue, batches of 64", pictures.OFFICE, SHIFTED),
    ("paintings, cartoons and sketches for photos, batches of 64", pictures.PACS, SHIFTED),
)
COMPARED = ("tea", "tent", SOURCE)  # named beside the leader of a stream

Numbers = dict[str, Any]


@cache
def measured() -> dict[str, Numbers]:
    """Read every method's accuracy, worst corruption, calibration, speed, memory and long stream from the rows."""
    rows = list(read(GRID))
    listed = {row["spec"]["method"] for row in rows}
    rows += [row for row in read(FAST) if row["spec"]["method"] not in listed and row["spec"]["severity"]]
    (grid,) = build(rows)
    by_method: dict[str, list[Any]] = {}
    for row in rows:
        by_method.setdefault(row["spec"]["method"], []).append(row)
    unadapted = {row["spec"]["shift"]: row["accuracy"] for row in by_method[SOURCE]}
    numbers: dict[str, Numbers] = {}
    for line in grid.lines:
        cells = by_method[line.method]
        gains = {
            shift: 100 * (statistics.mean(row["accuracy"] for row in cells if row["spec"]["shift"] == shift) - plain)
            for shift, plain in unadapted.items()
        }
        worst = min(gains, key=gains.__getitem__)
        numbers[line.method] = {
            "accuracy": line.values["mean"].ours.mean,
            "worst": (worst, gains[worst]),
            "ece": line.values["ECE"].ours.mean,
            "speed": statistics.median(row["images_per_s"] for row in cells),
            "graph": any(row["env"].get("graph") for row in cells),
            "memory": max(row["peak_memory"]["bytes"] for row in cells) / 2**30,
            "long": {},
        }
    for text in LONG.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if row["variant"] in numbers:
            numbers[row["variant"]]["long"][row["guard"]] = [100 * value for value in row["curve"]]
    return numbers


def table() -> str:
    """The advice, then the numbers it rests on."""
    return f"{_advice()}\n\n## The numbers\n\n{_numbers()}".replace(" %", PERCENT)


def long_stream() -> str:
    """What a reader of the first example must know: TEA on a stream that is never reset."""
    curves = measured()["tea"]["long"]
    start, end = (f"{value:.1f}" for value in (curves["off"][0], curves["off"][-1]))
    images = json.loads(LONG.read_text(encoding="utf-8").splitlines()[0])["images"]
    return (
        "On a stream that never ends, call `adapter.reset()` from time to time. Over "
        f"{images:,} images of corrupted\ndigits without a reset and without a guard, TEA fell from {start} to {end} % "
        "([rows](docs/choosing.md#the-numbers))."
    ).replace(" %", PERCENT)


def _advice() -> str:
    numbers = measured()
    source = numbers[SOURCE]

    def best(score: Callable[[Numbers], float], allowed: Callable[[Numbers], bool] = lambda _: True) -> str:
        names = [name for name in numbers if name != SOURCE and allowed(numbers[name])]
        return max(names, key=lambda name: score(numbers[name]))

    def times(name: str) -> str:
        return f"{source['speed'] / numbers[name]['speed']:.1f} times the time of `{SOURCE}`"

    top = best(lambda n: n["accuracy"])
    quick = best(lambda n: n["accuracy"], lambda n: 3 * n["speed"] >= source["speed"])
    cheap = best(lambda n: n["speed"])
    calibrated = best(lambda n: -n["ece"])
    steady = best(lambda n: n["long"]["off"][-1])
    graph = ", each step a CUDA graph" if numbers[top]["graph"] else ""
    steady_long = numbers[steady]["long"]["off"]
    lines = [
        (
            "the highest accuracy, at any cost",
            f"**{top}**",
            f"{numbers[top]['accuracy']:.1f} % (`{SOURCE}` {source['accuracy']:.1f} %) in {times(top)}{graph}",
        ),
        (
            f"the highest accuracy in at most three times the time of `{SOURCE}`",
            f"**{quick}**",
            f"{numbers[quick]['accuracy']:.1f} % in {times(quick)}",
        ),
        (
            "almost no extra cost",
            f"**{cheap}**",
            f"{numbers[cheap]['accuracy']:.1f} % in {times(cheap)}; needs {method_page.needs(METHODS[cheap])}",
        ),
        (
            "well calibrated probabilities",
            f"**{calibrated}**",
            f"ECE {numbers[calibrated]['ece']:.1f} % (`{SOURCE}` {source['ece']:.1f} %)",
        ),
        (
            "a long stream that is never reset",
            f"**{steady}**",
            f"{steady_long[0]:.1f} % at the start of the stream, {steady_long[-1]:.1f} % at its end",
        ),
    ]
    cases = (("many images of one class in a row", "label-shift"), ("a model with GroupNorm", "reset, GroupNorm"))
    for case, stream in cases:
        accuracies = streams_table.accuracies()[stream]
        leader = streams_table.best(stream)
        others = ", ".join(f"{name} {accuracies[name]:.1f}" for name in COMPARED if name != leader)
        why = f"{accuracies[leader]:.1f} %; {others}"
        if stream == "label-shift":  # its rows were reset before each corruption
            continual = streams_table.accuracies()["continual"][leader]
            why += f". On the `continual` stream, which has no resets, {leader} has {continual:.1f}"
        lines.append((case, f"**{leader}**", f"{why} ([rows](streams.md#what-they-do-to-each-method))"))
    for case, file, where in PICTURES:
        accuracies = pictures.means(file)
        leaders = [name for name, value in accuracies.items() if value == max(accuracies.values())]
        others = ", ".join(f"{name} {accuracies[name]:.1f}" for name in ("infuse", SOURCE) if name not in leaders)
        why = f"{accuracies[leaders[0]]:.1f} %; {others} ([rows]({where}))"
        lines.append((case, f"**{' or '.join(sorted(leaders))}**", why))
    single = {name: 100 * row["accuracy"] for name, (_, row) in safety_table.gains()[safety_table.ONE_BY_ONE].items()}
    values = ", ".join(f"{name} {single[name]:.1f}" for name in (*safety_table.SHOWN, SOURCE))
    why = f"one image at a time, in percent: {values} ([rows](deploying.md#does-it-hold))"
    lines.append(("single images, small batches", "any method with **the default guard**", why))
    table = ["| you want | take | why |", "|---|---|---|"]
    return "\n".join([*table, *(f"| {case} | {method} | {why} |" for case, method, why in lines)])


def _numbers() -> str:
    heads = ["accuracy", "least gain", "ECE", "passes", "images/s", "GiB"]
    heads += ["long stream", "needs"]
    lines = ["| method | " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1) + "---|"]
    for name, n in sorted(measured().items(), key=lambda item: -item[1]["accuracy"]):
        shift, gain = n["worst"]
        star = "\\*" if n["graph"] else ""
        least = "–" if name == SOURCE else f"{gain:+.1f} ({shift.replace('_', ' ')})".replace("-", "−")
        cells = (
            *(f"{n['accuracy']:.1f}", least, f"{n['ece']:.1f}", f"{method_page.passes(METHODS[name]):.3g}"),
            *(f"{n['speed']:,.0f}{star}", f"{n['memory']:.1f}"),
            *(_ends(n), method_page.needs(METHODS[name])),
        )
        lines.append(f"| [{name}](methods.md#{name}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ends(numbers: Numbers) -> str:
    curve = numbers["long"].get("off")
    return f"{curve[0]:.1f}\u00a0→\u00a0{curve[-1]:.1f}" if curve else "–"
