"""The paper's analyses: each measures the cells of a bench recipe, and gives flat rows that figures are made of."""

from steep.analysis.calibration import Calibration
from steep.analysis.cells import Analysis
from steep.analysis.energy import EnergyError, EnergySeverity, EnergySteps
from steep.analysis.samples import Samples
from steep.analysis.sensitivity import Sensitivity

ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (EnergyError(), EnergySteps(), EnergySeverity(), Samples(), Calibration(), Sensitivity())
}
"""Every analysis of a grid by name; `stream`, which is of one run, stands beside them."""

__all__ = ["ANALYSES", "Analysis"]
