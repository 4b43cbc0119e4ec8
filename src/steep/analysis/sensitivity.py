"""How much does accuracy hang on a hyper-parameter? One is varied at a time, for every corruption.

A recipe varies by naming variants: `rate-0.4 = { method = "tea", sgld_rate = 0.4 }`. What a variant varies is found by
comparing it with the method's own line, the one that goes by the method's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from steep.analysis.spec import Analysis, flat, lines, place
from steep.bench.rows import Row
from steep.errors import InputError
from steep.methods import SOURCE

RUN = ("batch_size", "steps")
"""What may be varied besides hyper-parameters."""


def rows(stored: Sequence[Row]) -> list[Row]:
    """One row for each cell and the parameter it varies; the method's own line counts for every parameter."""
    flat_rows = [
        flat("sensitivity", row, part="source", n=row["n"], accuracy=row["accuracy"])
        for row in stored
        if row["spec"]["method"] == SOURCE
    ]
    for method in dict.fromkeys(row["spec"]["method"] for row in stored if row["spec"]["method"] != SOURCE):
        cells = [row for row in stored if row["spec"]["method"] == method]
        base = {_where(row): row for row in cells if (row["spec"].get("label") or method) == method}
        if not base:
            raise InputError(f"sensitivity: expected a line named {method} to compare its variants with, got none")
        varied = [(row, *_varied(row, base.get(_where(row)))) for row in cells]
        flat_rows += [_row(row, method, name, value, False) for row, name, value in varied if name]
        for name in sorted({name for _, name, _ in varied if name}):
            flat_rows += [_row(row, method, name, _value(row["spec"], name), True) for row in base.values()]
    return flat_rows


def _row(row: Row, method: str, name: str, value: Any, usual: bool) -> Row:
    label = {"label": method}  # the variants are points of one line
    about = {"part": "point", "parameter": name, "value": value, "usual": usual}
    return flat("sensitivity", row, **{**label, **about, "n": row["n"], "accuracy": row["accuracy"]})


def _varied(row: Row, base: Row | None) -> tuple[str, Any]:
    """Name the one thing in which a cell differs from its base, and its value; nothing where none or several do."""
    if base is None:
        return "", None
    settings, usual = _settings(row["spec"]), _settings(base["spec"])
    names = [name for name in settings if settings[name] != usual.get(name)]
    return (names[0], _value(row["spec"], names[0])) if len(names) == 1 else ("", None)


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec.get("hyper", {}), **{name: spec.get(name) for name in RUN}}


def _value(spec: Mapping[str, Any], name: str) -> Any:
    value = _settings(spec)[name]
    return spec["batch_size"] if name == "chains" and value is None else value  # None: as many as images


def _where(row: Row) -> tuple[Any, ...]:
    return (*place(row["spec"]), row["spec"].get("setting"), row["spec"].get("seed"))


def summary(rows: Sequence[Row]) -> list[str]:
    """Say, for each parameter, where the mean accuracy is best and worst, over the shifts that every value has."""
    parted = lines([row for row in rows if row["part"] == "point"])
    return [f"{name}, {text}" if len(parted) > 1 else text for name, points in parted for text in _sentences(points)]


def _sentences(points: Sequence[Row]) -> list[str]:
    sentences = []
    for name in dict.fromkeys(row["parameter"] for row in points):
        values: dict[Any, list[float]] = {}
        for row in points:
            if row["parameter"] == name:
                values.setdefault(row["value"], []).append(row["accuracy"])
        most = max(map(len, values.values()))
        means = {value: fmean(accuracies) for value, accuracies in values.items() if len(accuracies) == most}
        best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        usual = next(row["value"] for row in points if row["parameter"] == name and row["usual"])
        sentences.append(
            f"{name}: best {means[best]:.2%} at {best:g}, worst {means[worst]:.2%} at {worst:g}"
            + (f", usual {means[usual]:.2%} at {usual:g}" if usual in means else "")
        )
        if len(means) < len(values):
            lacking = ", ".join(f"{value:g}" for value in sorted(set(values) - set(means)))
            sentences.append(f"{name}: not run for every shift, so left out: {lacking}")
    return sentences


ANALYSIS = Analysis(
    name="sensitivity",
    about="accuracy against SGLD rate and steps, adaptation rate, batch size and chains",
    recipe="analyze-sensitivity",
    rows=rows,
    summary=summary,
)
