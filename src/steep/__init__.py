"""steep: a trained image classifier keeps working when its data drifts.

adapter = steep.adapt(model, "tea")
for x in stream:
    logits = adapter(x)
"""

__version__ = "0.1.0.dev0"

from steep import models
from steep.core.adapter import Adapter
from steep.core.langevin import sample
from steep.core.losses import energy
from steep.core.method import Method
from steep.errors import SteepError
from steep.methods import METHODS, adapt

__all__ = ["METHODS", "Adapter", "Method", "SteepError", "adapt", "energy", "models", "sample"]
