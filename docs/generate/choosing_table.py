"""The page "choose a method": what was measured of each, and what to take for which purpose, from the stored rows."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import method_page
import streams_table
from steep.bench.rows import read
from steep.methods import METHODS, SOURCE
from steep.report.tables import build

RESULTS = Path(__file__).parents[2] / "results"
GRID, FAST = RESULTS / "cifar10-c-severity-5.jsonl", RESULTS / "tea-fast-h200.jsonl"
LONG = RESULTS / "long-stream-h200.jsonl"


@cache
def measured() -> dict[str, dict[str, Any]]:
    """Every method's numbers: accuracy, gain, its worst corruption, calibration, speed, memory, the long stream."""
    rows = list(read(GRID))
    listed = {row["spec"]["method"] for row in rows}
    rows += [row for row in read(FAST) if row["spec"]["method"] not in listed and row["spec"]["severity"]]
    (grid,) = build(rows)
    by: dict[str, list[Any]] = {}
    for row in rows:
        by.setdefault(row["spec"]["method"], []).append(row)
    unadapted = {row["spec"]["shift"]: row["accuracy"] for row in by[SOURCE]}
    found: dict[str, dict[str, Any]] = {}
    for line in grid.lines:
        own = by[line.method]
        gains = {
            shift: 100 * (statistics.mean(row["accuracy"] for row in own if row["spec"]["shift"] == shift) - plain)
            for shift, plain in unadapted.items()
        }
        worst = min(gains, key=gains.__getitem__)
        found[line.method] = {
            "accuracy": line.values["mean"].ours.mean,
            "worst": (worst, gains[worst]),
            "ece": line.values["ECE"].ours.mean,
            "speed": statistics.median(row["images_per_s"] for row in own),
            "graph": any(row["env"].get("graph") for row in own),
            "memory": max(row["peak_memory"]["bytes"] for row in own) / 2**30,
            "long": {},
        }
    for text in LONG.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if row["variant"] in found:
            found[row["variant"]]["long"][row["guard"]] = [100 * value for value in row["curve"]]
    return found


def table() -> str:
    """The advice, then the numbers it rests on."""
    return f"{_advice()}\n\n## The numbers\n\n{_numbers()}"


def _advice() -> str:
    found = measured()
    source = found[SOURCE]

    def best(
        score: Callable[[dict[str, Any]], float], allowed: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> str:
        return max((name for name in found if name != SOURCE and allowed(found[name])), key=lambda n: score(found[n]))

    def last(numbers: dict[str, Any]) -> float:
        return float(numbers["long"]["off"][-1])

    top = best(lambda n: n["accuracy"])
    quick = best(lambda n: n["accuracy"], lambda n: 3 * n["speed"] >= source["speed"])
    free = best(lambda n: n["speed"])
    calm = best(lambda n: -n["ece"])
    steady = best(last)
    lines = [
        (
            "the best answers, whatever they cost",
            top,
            f"{found[top]['accuracy']:.1f} % against {source['accuracy']:.1f} % unadapted, "
            f"at {source['speed'] / found[top]['speed']:.0f} times the time"
            + (", each step a CUDA graph" if found[top]["graph"] else ""),
        ),
        (
            "the best for at most three times the time of a plain forward",
            quick,
            f"{found[quick]['accuracy']:.1f} % at {source['speed'] / found[quick]['speed']:.1f} times the time",
        ),
        (
            "almost no cost and nothing that learns",
            free,
            f"{found[free]['accuracy']:.1f} % at {source['speed'] / found[free]['speed']:.1f} times the time; "
            f"needs {method_page.needs(METHODS[free])}",
        ),
        ("probabilities you can believe", calm, f"ECE {found[calm]['ece']:.1f} %, unadapted {source['ece']:.1f} %"),
        (
            "a stream without end and without a reset",
            steady,
            f"{last(found[steady]):.1f} % at the end of the stream, {found[steady]['long']['off'][0]:.1f} % at first",
        ),
        (
            f"{top} on such a stream",
            f'{top}, `guard="recover"`',
            f"{found[top]['long']['recover'][-1]:.1f} % at the end; without the guard {last(found[top]):.1f} %",
        ),
    ]
    for want, stream in (("classes in bursts", "label-shift"), ("a model with GroupNorm", "reset, GroupNorm")):
        own = streams_table.accuracies()[stream]
        take = streams_table.best(stream)
        rest = ", ".join(f"{name} {own[name]:.1f}" for name in ("tea", "tent", "source") if name != take)
        if stream == "label-shift":  # each corruption from the source model again
            rest += f"; without a reset between shifts {take} has {streams_table.accuracies()['continual'][take]:.1f}"
        lines.append((want, take, f"{own[take]:.1f} %; {rest} ([rows](streams.md#what-they-do-to-each-method))"))
    out = ["| you want | take | since |", "|---|---|---|"]
    return "\n".join([*out, *(f"| {want} | **{take}** | {why} |" for want, take, why in lines)])


def _numbers() -> str:
    found = measured()
    heads = (
        "accuracy",
        "least gain",
        "ECE",
        "passes",
        "images/s",
        "GiB",
        "long stream",
        "with recover",
        "needs",
    )
    out = ["| method | " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1) + "---|"]
    for name, n in sorted(found.items(), key=lambda item: -item[1]["accuracy"]):
        shift, gain = n["worst"]
        star = "\\*" if n["graph"] else ""
        least = "–" if name == SOURCE else f"{gain:+.1f} ({shift.replace('_', ' ')})".replace("-", "−")
        cells = (
            *(f"{n['accuracy']:.1f}", least, f"{n['ece']:.1f}", f"{method_page.passes(METHODS[name]):.3g}"),
            *(f"{n['speed']:,.0f}{star}", f"{n['memory']:.1f}"),
            *(_ends(n, "off"), _ends(n, "recover"), method_page.needs(METHODS[name])),
        )
        out.append(f"| [{name}](methods.md#{name}) | " + " | ".join(cells) + " |")
    return "\n".join(out)


def _ends(numbers: dict[str, Any], guard: str) -> str:
    curve = numbers["long"].get(guard)
    return f"{curve[0]:.1f}\u00a0→\u00a0{curve[-1]:.1f}" if curve else "–"
