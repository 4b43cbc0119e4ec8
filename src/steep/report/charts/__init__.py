"""One chart for each analysis, from its flat rows alone. Altair is imported when a chart is drawn.

A chart's file has `tables(rows)`, the numbers behind it, and `chart(rows, records)`, which draws them. Both take the
rows of one figure: `figures(rows)` parts the rows of a file into such.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from steep.report.charts import calibration, energy_error, energy_severity, energy_steps, samples, sensitivity, stream
from steep.report.charts.rows import Rows, figures, read
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


def _draw(module: Any, rows: Rows) -> Any:
    parts = [module.chart(group, module.tables(group)) for group in list(figures(rows).values()) or [rows]]
    several = len(parts) > 1
    whole = altair().vconcat(*parts, spacing=48) if several else parts[0]
    return (whole.resolve_scale(color="independent", shape="independent") if several else whole).configure(**theme())


CHARTS: dict[str, Callable[[Rows], Any]] = {n: functools.partial(_draw, module) for n, module in _MODULES.items()}
"""Draws rows by the name of their analysis, several figures one below the other; gives an Altair chart."""

TABLES: dict[str, Callable[[Rows], dict[str, Rows]]] = {name: module.tables for name, module in _MODULES.items()}
"""The numbers behind each chart, as tables by name."""

__all__ = ["CHARTS", "COLOURS", "TABLES", "figures", "read", "theme"]
