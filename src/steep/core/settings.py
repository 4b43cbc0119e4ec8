"""The options of `steep.adapt` in two groups: what an adapter does, and how it computes that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import torch

from steep.core.dist.group import Distributed
from steep.core.io import arguments
from steep.core.method import Method, Moment
from steep.errors import InputError

GUARDS = ("skip", "recover", "raise", "off")
BAD_IMAGES = ("raise", "nan")


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What is done with each batch. It changes the results, so it is saved with the state."""

    steps: int = 1
    episodic: bool = False
    predict: Moment | None = None
    seed: int = 0
    precision: str = "float32"
    guard: str = "skip"
    bad_images: str = "raise"
    deterministic: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be, and turn numbers of other libraries into Python's own, which can be saved."""
        steps, seed = arguments.whole("steps", self.steps), arguments.seed(self.seed)
        if steps < 1:
            raise InputError(f"steps: expected ≥ 1 per batch, got {steps}")
        if self.predict is not None and self.predict not in get_args(Moment):
            raise InputError(f"predict: expected 'before' or 'after' (the update), got {self.predict!r}")
        if self.guard not in GUARDS:
            raise InputError(f"guard: expected one of {', '.join(GUARDS)}, got {self.guard!r}")
        if self.bad_images not in BAD_IMAGES:
            raise InputError(f"bad_images: expected 'raise' or 'nan', got {self.bad_images!r}")
        arguments.check_switches(episodic=self.episodic, deterministic=self.deterministic)
        plain = {"steps": steps, "seed": seed}
        plain |= {"episodic": bool(self.episodic), "deterministic": bool(self.deterministic)}
        vars(self).update(plain)  # frozen for everybody else

    def for_method(self, method: Method[Any]) -> Self:
        """Answer before or after the update as the method's paper does, unless the caller has chosen."""
        return replace(self, predict=self.predict or method.predicts)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How and where it is computed. The results stay the same up to rounding; `steep.resume` may choose anew."""

    device: torch.device | str | None = None
    compile: bool = False
    graph: bool = False
    recompute: bool = False
    inplace: bool = False
    distributed: Distributed = False

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        switches = {"compile": self.compile, "graph": self.graph, "recompute": self.recompute, "inplace": self.inplace}
        arguments.check_switches(**switches)
        if self.distributed and (self.compile or self.graph):
            raise InputError("distributed: ranks wait for each other inside a step. Leave compile and graph out")
