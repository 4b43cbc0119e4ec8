"""TEA for the price of Tent: few, long Langevin steps on few chains."""

from __future__ import annotations

from dataclasses import dataclass

from steep.core.method import Look
from steep.methods.tea import TEA


@dataclass(frozen=True, kw_only=True)
class TeaFast(TEA):
    """TEA with few, long sampling steps on few chains; a search on corruptions outside every benchmark chose them."""

    name = "tea-fast"
    look = Look("#7A3B00", "diamond")

    sgld_steps: int = 3
    sgld_rate: float = 0.7
    chains: int | None = 25
