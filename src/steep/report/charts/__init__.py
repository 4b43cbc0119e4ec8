"""One chart for each analysis, from its flat rows alone. Altair is imported when a chart is drawn."""

from __future__ import annotations

from collections.abc import Callable

from steep.report.charts import calibration, energy, samples, sensitivity, stream
from steep.report.charts.rows import Rows, figures, read
from steep.report.charts.style import COLOURS, Chart, theme

CHARTS: dict[str, Chart] = {
    chart.analysis: chart
    for chart in (*energy.CHARTS, samples.CHART, calibration.CHART, sensitivity.CHART, stream.CHART)
}
"""Draws rows by the name of their analysis, several figures one below the other; gives an Altair chart."""

TABLES: dict[str, Callable[[Rows], dict[str, Rows]]] = {name: chart.tables for name, chart in CHARTS.items()}
"""The numbers behind each chart, as tables by name."""

__all__ = ["CHARTS", "COLOURS", "TABLES", "figures", "read", "theme"]
