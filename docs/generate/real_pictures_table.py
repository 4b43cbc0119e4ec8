"""Real pictures at 224 pixels with an EfficientNet-Lite0: what methods do there, from stored rows."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from steep.bench.rows import read, unpacked
from steep.methods import METHODS, SOURCE

RESULTS = Path(__file__).parents[2] / "results/real-pictures"
BENCH, HELD_OUT = RESULTS / "imagenet-c-lite0-640-h200.jsonl", RESULTS / "lite0-held-out-h200.jsonl"
GUARDED = RESULTS / "lite0-guard-cpu.jsonl"
BY_BATCH = {8: RESULTS / "imagenet-c-lite0-batch-8-h200.jsonl", 64: BENCH,
            200: RESULTS / "imagenet-c-lite0-batch-200-h200.jsonl"}  # fmt: skip
CHAINS = RESULTS / "lite0-chains-h200.jsonl"
OFFICE, PACS = RESULTS / "office-caltech-lite0-h200.jsonl", RESULTS / "pacs-lite0-640-h200.jsonl"
SPEED = RESULTS / "speed-224-h200.jsonl"
IN_PAIRS = (SOURCE, "bn", "tent", "alpha-bn", "t3a", "infuse")  # the columns where each pair of domains has a line


def held_out() -> str:
    """All pictures, with the guard as it was."""
    return _by_set(HELD_OUT, {"off": "", "recover": ", guard as it was"})


def guarded() -> str:
    """Some of the pictures, with the guard as it is."""
    return _by_set(GUARDED, {"off": ", no guard", "recover": ", default guard"})


def _by_set(file: Path, guards: dict[str, str]) -> str:
    """A line for each method, a column for each set of pictures."""
    rows = _lines(file)
    sets = list(dict.fromkeys((row["shift"], row["severity"]) for row in rows))
    by_line: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        rate = f", rate {row['hyper']['lr']:g}" if row["hyper"] else ""
        name = f"{row['method']}{rate}{guards[row['guard']] if row['method'] != SOURCE else ''}"
        by_line.setdefault(name, {})[row["shift"], row["severity"]] = 100 * row["accuracy"]
    heads = [f"{shift.replace('_', ' ')} {severity or ''}".strip() for shift, severity in sets]
    table = ["| method | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(sets)]
    for name, values in by_line.items():
        cells = [f"{values[each]:.1f}" if each in values else "–" for each in sets]
        table.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(table)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


Rows = dict[str, dict[tuple[str, str, int], dict[str, Any]]]  # by label, then by source, shift and severity


def _all(file: Path) -> Rows:
    by_label: Rows = defaultdict(dict)
    for row in read(file):
        spec = row["spec"]
        by_label[spec["label"] or spec["method"]][spec["source"], spec["shift"], spec["severity"]] = row
    return by_label


def _complete(file: Path) -> Rows:
    """Rows of the methods that have every set that the source model has."""
    by_label = _all(file)
    return {label: rows for label, rows in by_label.items() if rows.keys() == by_label[SOURCE].keys()}


def means(file: Path) -> dict[str, float]:
    """Mean accuracy over all sets of pictures, in percent, of the methods that have them all."""
    rows = _complete(file)
    return {label: 100 * statistics.fmean(row["accuracy"] for row in by_set.values()) for label, by_set in rows.items()}


def _gain(row: dict[str, Any], source: dict[str, Any]) -> tuple[float, float]:
    """Points above the source model on the same pictures, and the standard error of that."""
    difference = unpacked(row["right"], row["n"]).astype(int) - unpacked(source["right"], source["n"])
    return 100 * float(difference.mean()), 100 * float(difference.std() / np.sqrt(len(difference)))


class Compared(NamedTuple):
    """Points above the source model, sets that are significantly above and below it, and the worst set."""

    gain: float
    above: int
    below: int
    worst: str

    def __str__(self) -> str:
        """Cells of a line."""
        return f"{_signed(self.gain)} | {self.above} | {self.below} | {self.worst}"


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def _compared(rows: Rows, label: str) -> Compared:
    gains = {key: _gain(row, rows[SOURCE][key]) for key, row in rows[label].items()}
    above = sum(gain > 2 * error for gain, error in gains.values())
    below = sum(gain < -2 * error for gain, error in gains.values())
    (source, shift, severity), (worst, _) = min(gains.items(), key=lambda item: item[1][0])
    where = f"{source} → {shift}" if source else f"{shift.replace('_', ' ')} {severity or ''}".strip()
    mean = statistics.fmean(gain for gain, _ in gains.values())
    return Compared(mean, above, below, f"{where} {_signed(worst)}")


def benchmark() -> str:
    """A line for each method that has all of ImageNet-C: clean, and the mean over the 15 corruptions."""
    rows = _complete(BENCH)
    at = {}
    for label, by_set in rows.items():
        by_severity = defaultdict(list)
        for (_, _, severity), row in by_set.items():
            by_severity[severity].append(100 * row["accuracy"])
        at[label] = {severity: statistics.fmean(values) for severity, values in by_severity.items()}
    lines = ["| method | clean | severity 3 | severity 5 | above source | sets above | sets below | worst set |",
             "|---|---:|---:|---:|---:|---:|---:|---|"]  # fmt: skip
    for label, mean in sorted(at.items(), key=lambda line: -line[1][3] - line[1][5]):
        compared = _compared(rows, label) if label != SOURCE else "– | – | – | –"
        lines.append(f"| {label} | " + " | ".join(f"{mean[s]:.1f}" for s in (0, 3, 5)) + f" | {compared} |")
    return "\n".join(lines)


def by_batch() -> str:
    """A line for each method that has every set in all batches: points above the source model, and sets below it."""
    rows = {batch: _complete(file) for batch, file in BY_BATCH.items()}
    labels = set.intersection(*(set(by_label) for by_label in rows.values())) - {SOURCE}
    shown = {label: [_compared(by, label) for by in rows.values()] for label in labels}
    lines = ["| method | " + " | ".join(f"batches of {batch}" for batch in rows) + " |", "|---|" + "---:|" * len(rows)]
    lines += [
        f"| {label} | " + " | ".join(f"{_signed(each.gain)}, {each.below}" for each in shown[label]) + " |"
        for label in sorted(labels, key=lambda label: (-sum(each.gain for each in shown[label]), label))
    ]
    return "\n".join(lines)


def chains() -> str:
    """Accuracy by the number of chains, on corruptions that no benchmark uses, and what a batch costs beside tent."""
    speeds = _lines(SPEED)
    models = list(dict.fromkeys(row["model"] for row in speeds))
    right: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in read(CHAINS):
        right[row["spec"]["method"], row["spec"]["hyper"].get("chains", 0)].append(100 * row["accuracy"])
    times = {}
    for row in speeds:
        if row["mode"] == "graph" and set(row["hyper"]) <= {"chains"}:
            number = row["hyper"].get("chains", getattr(METHODS[row["method"]](), "chains", None))
            times[row["method"], number or 0, row["model"]] = f"{row['over_tent']:.1f} ×"
    lines = ["| method | chains | accuracy | " + " | ".join(f"time, {model}" for model in models) + " |",
             "|---|---:|---:|" + "---:|" * len(models)]  # fmt: skip
    for (method, number), values in sorted(right.items(), key=lambda item: (item[0][1], item[0][0])):
        costs = [times.get((method, number, model), "not measured") for model in models]
        cells = [method, str(number or "–"), f"{statistics.fmean(values):.1f}", *costs]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def office() -> str:
    """Every method over all pairs of domains of Office-Caltech."""
    return _pairs(OFFICE)


def pacs() -> str:
    """Every method over all pairs of domains of PACS."""
    return _pairs(PACS)


def _pairs(file: Path) -> str:
    """A line for each method: mean over the pairs, and how it compares with the source model picture by picture."""
    rows = _complete(file)
    lines = ["| method | mean of all pairs | above source | pairs above | pairs below | worst pair |",
             "|---|---:|---:|---:|---:|---|"]  # fmt: skip
    for label, mean in sorted(means(file).items(), key=lambda line: -line[1]):
        lines.append(f"| {label} | {mean:.1f} | {_compared(rows, label) if label != SOURCE else '– | – | – | –'} |")
    return "\n".join(lines)


def office_pairs() -> str:
    """A line for each pair of Office-Caltech."""
    return _each_pair(_complete(OFFICE))


def pacs_pairs() -> str:
    """A line for each pair of PACS."""
    return _each_pair(_complete(PACS))


def _each_pair(rows: Rows) -> str:
    lines = ["| from → to | pictures | " + " | ".join(IN_PAIRS) + " |", "|---|---:|" + "---:|" * len(IN_PAIRS)]
    for key, source in sorted(rows[SOURCE].items()):
        shown = [f"{100 * rows[label][key]['accuracy']:.1f}" for label in IN_PAIRS]
        lines.append(f"| {key[0]} → {key[1]} | {source['n']:,} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def speed() -> str:
    """Milliseconds and memory of a batch of 64 pictures: a line for each method, two models in two ways to compute."""
    rows = _lines(SPEED)
    ways = list(dict.fromkeys((row["model"], row["mode"]) for row in rows))
    by_line: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
    for row in rows:
        settings = ", ".join(f"{name}={value}" for name, value in row["hyper"].items())
        by_line.setdefault(" ".join(filter(None, (row["method"], settings))), {})[row["model"], row["mode"]] = row
    names = {"graph": "bfloat16, recorded", "float32": "float32"}
    lines = ["| method | " + " | ".join(f"{model}, {names[mode]}" for model, mode in ways) + " |"]
    lines.append("|---|" + "---:|" * len(ways))
    for name, cells in by_line.items():
        lines.append(f"| `{name}` | " + " | ".join(_speed(cells.get(way)) for way in ways) + " |")
    return "\n".join(lines)


def _speed(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not measured"
    return f"{row['ms']:.0f} ms, {row['over_tent']:.1f} ×, {row['gib']:.1f} GiB"
