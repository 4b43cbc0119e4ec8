"""How much does accuracy hang on a hyper-parameter? One is varied at a time, for every corruption.

A recipe varies by naming variants: `rate-0.4 = { method = "tea", sgld_rate = 0.4 }`. What a variant varies is found by
comparing it with the method's own line, the one that goes by the method's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from steep.analysis.cells import Analysis, images_of, lines
from steep.bench.rows import Row, grouped
from steep.errors import InputError
from steep.methods import is_baseline

RUN = ("batch_size", "steps")
"""What may be varied besides hyper-parameters."""


class Sensitivity(Analysis):
    """Accuracy against SGLD rate and steps, adaptation rate, batch size and chains."""

    name = "sensitivity"
    recipe = "analyze-sensitivity"

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """One row for each cell and the parameter it varies; the method's own line counts for every parameter."""
        flat_rows = []
        for method, cells in grouped(stored, lambda row: str(row["spec"]["method"])).items():
            if is_baseline(method):
                flat_rows += [self.flat(row, part="source", n=row["n"], accuracy=row["accuracy"]) for row in cells]
                continue
            base = {_where(row): row for row in cells if (row["spec"].get("label") or method) == method}
            if not base:
                raise InputError(f"sensitivity: expected a line named {method} to compare its variants with, got none")
            varied = [(row, name, False) for row in cells if (name := _varied(row, base.get(_where(row))))]
            names = sorted({name for _, name, _ in varied})
            for row, name, usual in varied + [(row, name, True) for name in names for row in base.values()]:
                about = {"part": "point", "parameter": name, "value": _value(row["spec"], name), "usual": usual}
                about |= {"label": method, "n": row["n"], "accuracy": row["accuracy"]}  # variants are one line's points
                flat_rows.append(self.flat(row, **about))
        return flat_rows

    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Say, for each parameter, where the mean accuracy is best and worst, over the shifts that every value has."""
        parted = lines(rows, "point")
        return [
            f"{name}, {sentence}" if len(parted) > 1 else sentence
            for name, points in parted
            for parameter in dict.fromkeys(row["parameter"] for row in points)
            for sentence in _sentences(parameter, [row for row in points if row["parameter"] == parameter])
        ]


def _sentences(parameter: str, points: Sequence[Row]) -> Iterator[str]:
    values = grouped(points, lambda row: row["value"])
    most = max(map(len, values.values()))
    means = {value: fmean(row["accuracy"] for row in rows) for value, rows in values.items() if len(rows) == most}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    usual = next(row["value"] for row in points if row["usual"])
    usually = f", usual {means[usual]:.2%} at {usual:g}" if usual in means else ""
    yield f"{parameter}: best {means[best]:.2%} at {best:g}, worst {means[worst]:.2%} at {worst:g}{usually}"
    if lacking := sorted(values.keys() - means.keys()):
        yield f"{parameter}: not run for every shift, so left out: {', '.join(f'{value:g}' for value in lacking)}"


def _varied(row: Row, base: Row | None) -> str:
    """Name the one thing in which a cell differs from its base; nothing where none or several do."""
    if base is None:
        return ""
    settings, usual = _settings(row["spec"]), _settings(base["spec"])
    names = [name for name in settings if settings[name] != usual.get(name)]
    return names[0] if len(names) == 1 else ""


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec.get("hyper", {}), **{name: spec.get(name) for name in RUN}}


def _value(spec: Mapping[str, Any], name: str) -> Any:
    value = _settings(spec)[name]
    return spec["batch_size"] if name == "chains" and value is None else value  # None: as many as images


def _where(row: Row) -> tuple[Any, ...]:
    return (*images_of(row["spec"]), row["spec"].get("setting"), row["spec"].get("seed"))
