"""The method that chooses beside fixed methods, wherever both were run: what is lost by not knowing which is best"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from situations import OURS, UNADAPTED, Line, Situation, situations
from steep.bench.rows import read

ROWS = Path(__file__).parents[2] / "results/tried/auto-wrn-40-2-cpu.jsonl"
LEAST = 10  # situations; a line that was run in fewer counts as a rival only
WORST = "worst beside the source model"
MUCH = 0.5  # points below the source model that are worth a sentence


def corruptions() -> str:
    """Mean accuracy over the 15 corruptions, a column for each kind of stream."""
    values: dict[str, dict[str, dict[str, float]]] = {}
    for row in read(ROWS):
        spec = row["spec"]
        values.setdefault(spec["protocol"], {}).setdefault(spec["label"], {})[spec["shift"]] = 100 * row["accuracy"]
    means = {}
    for protocol, methods in values.items():
        shifts = max(map(len, methods.values()))
        means[protocol] = {name: statistics.mean(v.values()) for name, v in methods.items() if len(v) == shifts}
    names = list(dict.fromkeys(name for methods in means.values() for name in methods))
    lines = ["| method | " + " | ".join(means) + " |", "|---|" + "---:|" * len(means)]
    for name in names:
        cells = [f"{methods[name]:.1f}" if name in methods else "–" for methods in means.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def groups() -> str:
    """The table by kind of situation, and where the one that chooses is below the source model."""
    return "\n".join([by_group(situations()), "", *beside_source(situations())])


def methods() -> str:
    """The table by method, and which have no line or are missing somewhere."""
    return "\n".join([by_method(situations()), "", *missing(situations())])


def regret(situation: Situation, line: Line) -> float:
    """Points behind the best of the fixed ones; below zero only for the one that chooses."""
    return max(value for other, value in situation.accuracy.items() if other != OURS) - situation.accuracy[line]


def gain(situation: Situation) -> float | None:
    """Points of the one that chooses above the source model, where that was run."""
    return situation.accuracy[OURS] - situation.accuracy[UNADAPTED] if UNADAPTED in situation.accuracy else None


def by_method(every: Sequence[Situation]) -> str:
    """A line for each that was run often enough: its regret, and that of the one that chooses where it was run."""
    heads = ["method", "situations", "mean regret", f"{OURS}'s there", "largest regret", WORST]
    table = ["| " + " | ".join(heads) + " |", "|---|---:|---:|---:|---|---|"]
    rows = []
    for line in dict.fromkeys(line for situation in every for line in situation.accuracy):
        some = [situation for situation in every if line in situation.accuracy]
        if len(some) >= LEAST or line == OURS:
            mean, ours = (statistics.fmean(regret(s, each) for s in some) for each in (line, OURS))
            rows.append((mean - ours, line != OURS, line, some, mean, ours))
    for _, _, line, some, mean, ours in sorted(rows, key=lambda row: row[:3]):
        cells = [str(line), str(len(some)), _plain(mean), _plain(ours) if line != OURS else "–"]
        table.append("| " + " | ".join([*cells, _worst_regret(some, line), _least_gain(some, line)]) + " |")
    return "\n".join(table)


def by_group(every: Sequence[Situation]) -> str:
    """A line for each kind of situation: the regret of the one that chooses, and where it is below the source model."""
    heads = ["kind", "situations", "mean regret", "largest regret", WORST]
    table = [f"| {' | '.join(heads)} |", "|---|---:|---:|---|---|"]
    for group in dict.fromkeys(situation.group for situation in every):
        some = [situation for situation in every if situation.group == group]
        mean = _plain(statistics.fmean(regret(situation, OURS) for situation in some))
        cells = [group, str(len(some)), mean, _worst_regret(some, OURS), _least_gain(some, OURS)]
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join(table)


def beside_source(every: Sequence[Situation]) -> list[str]:
    """Where the one that chooses is below the source model: in which situations, and in which of their sets."""
    gains = {situation.name: value for situation in every if (value := gain(situation)) is not None}
    sets = {f"{s.name}, {each}": value for s in every if len(s.sets) > 1 for each, value in s.sets.items()}
    text = [f"{len(every)} situations, {len(gains)} of them with the source model. {below(gains, 'situations')}"]
    if sets:
        text.append(f"A mean hides single sets (a corruption, a pair of domains): {below(sets, 'sets', most=5)}")
    return text


def missing(every: Sequence[Situation]) -> list[str]:
    """Which were run too seldom for a line, and which were not run on all the images."""
    text = []
    run = Counter(line for situation in every for line in situation.accuracy)
    rare = [f"{line} ({count})" for line, count in run.items() if count < LEAST and line != OURS]
    if rare:
        text.append(f"Run in fewer than {LEAST} situations, so without a line, but rivals there: {', '.join(rare)}.")
    lacking = Counter(line for situation in every for line in situation.partial)
    if lacking:
        listed = ", ".join(f"{line} ({count})" for line, count in lacking.items())
        text.append(f"Left out in situations where they were not run on all the images: {listed}.")
    return text


def below(gains: Mapping[str, float], what: str, most: int | None = None) -> str:
    """Name what is below the source model by more than half a point, the worst first; say how many there are."""
    lower = sorted((value, name) for name, value in gains.items() if value < -MUCH)
    if not lower:
        return f"`{OURS}` is below the source model by more than {MUCH} points in none of {len(gains)} {what}."
    listed = "; ".join(f"{name} ({_plain(value)})" for value, name in lower[:most])
    worst = "" if len(lower) == len(lower[:most]) else ", the worst"
    return (
        f"`{OURS}` is below the source model by more than {MUCH} points in {len(lower)} of {len(gains)} {what}"
        f"{worst}: {listed}."
    )


def _worst_regret(some: Sequence[Situation], line: Line) -> str:
    most = max(some, key=lambda situation: regret(situation, line))
    return f"{_plain(regret(most, line))} ({most.name})"


def _least_gain(some: Sequence[Situation], line: Line) -> str:
    beside = [s for s in some if UNADAPTED in s.accuracy]
    if not beside or line == UNADAPTED:
        return "–"
    least = min(beside, key=lambda s: s.accuracy[line] - s.accuracy[UNADAPTED])
    return f"{_plain(least.accuracy[line] - least.accuracy[UNADAPTED], '+')} ({least.name})"


def _plain(value: float, sign: str = "") -> str:
    return f"{value:{sign}.1f}".replace("-0.0", "0.0").replace("-", "−")
