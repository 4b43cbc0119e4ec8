"""One chart for each analysis, from its flat rows alone. Altair is imported when a chart is drawn.

A chart's file has `tables(rows)`, the numbers behind it, and `chart(rows)`, which draws them. Both take the rows of one
figure: `figures(rows)` parts the rows of a file into such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steep.report.charts import (
    calibration,
    energy_error,
    energy_severity,
    energy_steps,
    samples,
    sensitivity,
    stream,
)
from steep.report.charts.rows import figures, read
from steep.report.charts.style import COLOURS, altair, theme

_MODULES: dict[str, Any] = {
    "energy-error": energy_error,
    "energy-steps": energy_steps,
    "energy-severity": energy_severity,
    "samples": samples,
    "calibration": calibration,
    "sensitivity": sensitivity,
    "stream": stream,
}


def _drawn(name: str) -> Callable[[list[dict[str, Any]]], Any]:
    def chart(rows: list[dict[str, Any]]) -> Any:
        parts = [_MODULES[name].chart(group) for group in figures(rows).values()] or [_MODULES[name].chart(rows)]
        whole = (
            parts[0]
            if len(parts) == 1
            else altair().vconcat(*parts, spacing=48).resolve_scale(color="independent", shape="independent")
        )
        return whole.configure(**theme())

    return chart


CHARTS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {name: _drawn(name) for name in _MODULES}
"""Draws rows by the name of their analysis, several figures one below the other; gives an Altair chart."""

TABLES: dict[str, Callable[[list[dict[str, Any]]], dict[str, list[dict[str, Any]]]]] = {
    name: module.tables for name, module in _MODULES.items()
}
"""The numbers behind each chart, as tables by name."""

__all__ = ["CHARTS", "COLOURS", "TABLES", "figures", "read", "theme"]
