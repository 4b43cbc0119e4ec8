"""What TEA gains grows with severity; on mild corruptions, the paper admits, it gains nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steep.bench.rows import Row
from steep.methods import SOURCE
from steep.report.claims import FAILS, HOLDS, NOISE, baselines, decide, line_of
from steep.report.noise import Measured, accuracy, places
from steep.report.paper import SUBJECT, benchmark
from steep.report.tables import Line, Table
from steep.report.words import number, signed
from tools.results_page.claims.choosing import CORRUPTED, EVERY, MODEL, about, images, limited, named
from tools.results_page.claims.placed import Claim, missing, origin


@dataclass(frozen=True)
class Level:
    """TEA at one severity, against the source model and the best of the other methods."""

    over_source: Measured
    over_best: Measured | None  # None where no other method adapts there
    best: str
    rows: tuple[Row, ...]


def grows(tables: Sequence[Table]) -> Iterator[Claim]:
    """Say whether the gain over the source model, and that over the best other method, rises from severity 1 to 5."""
    for data in CORRUPTED:
        where = named(data, MODEL, severities=EVERY)
        text = "TEA's gain over the source model grows with severity"
        more = "TEA's gain over the best other method grows with severity (ours to ask)"
        levels = _alike(about(tables, data, MODEL))
        if lacking := [level for level in EVERY if level not in levels]:
            why = f"no rows of tea and source on all shifts at severity {', '.join(map(str, lacking))}"
            yield missing(text, where, why)
            continue
        rows = [row for level in levels.values() for row in level.rows]
        gains = [levels[level].over_source for level in EVERY]
        yield Claim(text, _listed(gains), _rising(gains), where, origin(rows), _part(rows))
        best = [levels[level].over_best for level in EVERY]
        known = [gain for gain in best if gain is not None]
        if len(known) == len(EVERY):
            rivals = ", ".join(dict.fromkeys(levels[level].best for level in EVERY))
            yield Claim(more, f"{_listed(known)} (best: {rivals})", _rising(known), where, origin(rows), _part(rows))


def mild(tables: Sequence[Table]) -> Iterator[Claim]:
    """Say whether TEA fails to gain on clean images, brightness 1 and severity 1, as the paper admits."""
    text = "Admitted: on mild shifts TEA does not improve on the source model"
    for data in CORRUPTED[:2]:
        every = about(tables, data, MODEL)
        for name, shift, severity in (("brightness, severity 1", "brightness", 1), ("clean images", "clean", 0)):
            where = f"{named(data, MODEL)}, {name}"
            measured = _at(every, shift, severity)
            if measured is None:
                yield missing(text, where, "no rows of tea and source there")
                continue
            tea, source, rest, rows = measured
            away = tea - source
            words = f"{number(tea.value)}; against source: {away}"
            if rest:
                value, rival = max(rest, key=lambda pair: pair[0].value)
                words += f"; against {rival}: {tea - value}"
            yield Claim(text, words, decide(-away), where, origin(rows), _part(rows))


def _at(
    tables: Sequence[Table], shift: str, severity: int
) -> tuple[Measured, Measured, list[tuple[Measured, str]], list[Row]] | None:
    """TEA, source and the others on one set; of several tables the one of most methods and images."""
    best = None
    for table in tables:
        by_method: dict[str, tuple[Measured, list[Row]]] = {}
        for line in (line_of(table, SUBJECT), *baselines(table)):
            points = {} if line is None else places(line, (severity,), clean=shift == "clean")
            of_place = {point: rows for point, rows in points.items() if point == (shift, severity)}
            value = accuracy(of_place)
            if line is not None and value is not None:
                by_method[line.name] = (value, of_place[shift, severity])
        if {SUBJECT, SOURCE} <= set(by_method):
            rows = [row for _, some in by_method.values() for row in some]
            size = (rows[0]["n"], len(by_method))
            if best is None or size > best[0]:
                rest = [(value, name) for name, (value, _) in by_method.items() if name not in (SUBJECT, SOURCE)]
                best = (size, by_method[SUBJECT][0], by_method[SOURCE][0], rest, rows)
    return None if best is None else best[1:]


def _alike(tables: Sequence[Table]) -> dict[int, Level]:
    """Find the severities of one model in one precision; of as many images each, if that gives as many severities.

    A difference between severities must be one of severity: other weights or another precision make another trend.
    """
    trends: dict[tuple[object, ...], list[Table]] = {}
    for table in tables:
        about_all = tuple(str(table.spec.get(name)) for name in ("weights", "weights_sha256", "precision"))
        for key in ((*about_all, table.spec.get("limit")), about_all):
            trends.setdefault(key, []).append(table)
    candidates = [(key, levels) for key, of_trend in trends.items() if (levels := _levels(of_trend))]

    def rank(one: tuple[tuple[object, ...], dict[int, Level]]) -> tuple[int, bool, int]:
        key, levels = one
        return len(levels), len(key) == 4, sum(int(row["n"]) for level in levels.values() for row in level.rows)

    return max(candidates, key=rank)[1] if candidates else {}


def _levels(tables: Sequence[Table]) -> dict[int, Level]:
    """Find each severity where all shifts are there; one set of images for each, never two in one mean."""
    by_severity: dict[int, tuple[tuple[int, int], Level]] = {}
    for table in tables:
        tea, source = line_of(table, SUBJECT), line_of(table, SOURCE)
        if tea is None or source is None:
            continue
        for severity in table.severities:
            ours, base = _mean(tea, severity), _mean(source, severity)
            if ours is None or base is None:
                continue
            others = [
                (value, line)
                for line in baselines(table)
                if line.name != SOURCE and (value := _mean(line, severity)) is not None
            ]
            best = max(others, key=lambda pair: pair[0].value, default=None)
            lines = [tea, source, *(line for _, line in others)]
            rows = tuple(row for line in lines for row in line.rows if row["spec"]["severity"] == severity)
            level = Level(ours - base, ours - best[0] if best else None, best[1].name if best else "", rows)
            size = (max(images(lines)), len(others))
            if severity not in by_severity or size > by_severity[severity][0]:
                by_severity[severity] = (size, level)
    return {severity: level for severity, (_, level) in sorted(by_severity.items())}


def _part(rows: Sequence[Row]) -> str:
    """Say where only some images of each set were run, if as many at every severity."""
    limits = {row["spec"].get("limit") for row in rows}
    return limited(limits.pop()) if len(limits) == 1 else ""


def _mean(line: Line, severity: int) -> Measured | None:
    points = places(line, (severity,))
    return accuracy(points) if {shift for shift, _ in points} == set(benchmark()) else None


def _rising(gains: Sequence[Measured]) -> str:
    """Rising: the last is above the first, and no step falls, both by more than noise."""
    steps = [after - before for before, after in itertools.pairwise(gains)]
    whole = (gains[-1] - gains[0]).side
    if whole < 0 or any(step.side < 0 for step in steps):
        return FAILS
    return HOLDS if whole > 0 else NOISE


def _listed(gains: Sequence[Measured]) -> str:
    points = ", ".join(signed(gain.value) for gain in gains)
    return f"{points} points at severities 1 to 5; the last less the first: {gains[-1] - gains[0]}"
