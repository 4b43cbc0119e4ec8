"""steep: a trained image classifier keeps working when its data drifts.

adapter = steep.adapt(model, "tea")
for x in stream:
    logits = adapter(x)
"""

from steep import data, errors, metrics, models
from steep.comparing import compare
from steep.core.adapter import Adapter
from steep.core.langevin import sample
from steep.core.losses import energy
from steep.core.method import Method
from steep.corruptions import CORRUPTIONS, corrupt
from steep.methods import METHODS, adapt, resume
from steep.version import __version__

__all__ = [
    "CORRUPTIONS",
    "METHODS",
    "Adapter",
    "Method",
    "__version__",
    "adapt",
    "compare",
    "corrupt",
    "data",
    "energy",
    "errors",
    "metrics",
    "models",
    "resume",
    "sample",
]
