"""The paper's analyses: each measures the cells of a bench recipe, and gives flat rows that figures are made of.

>>> from steep.analysis import ANALYSES
>>> list(ANALYSES)
['energy-error', 'energy-steps', 'energy-severity', 'samples', 'calibration', 'sensitivity']
"""

from steep.analysis import calibration, energy_error, energy_severity, energy_steps, samples, sensitivity
from steep.analysis.spec import Analysis

ANALYSES: dict[str, Analysis] = {
    module.ANALYSIS.name: module.ANALYSIS
    for module in (energy_error, energy_steps, energy_severity, samples, calibration, sensitivity)
}
"""Every analysis of a grid by name; `stream`, which is of one run, stands beside them."""

__all__ = ["ANALYSES", "Analysis"]
