"""Comparing: does adapting help on these images? Several methods on the same stream, with labels or without."""

from steep.comparing.compare import Comparison, Row, compare
from steep.comparing.estimate import Estimate, Signs, estimated_gain
from steep.comparing.running import RunningGain

__all__ = ["Comparison", "Estimate", "Row", "RunningGain", "Signs", "compare", "estimated_gain"]
