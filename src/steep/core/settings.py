"""The options of `steep.adapt` in two groups: what an adapter does, and how it computes that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import torch

from steep.core.constraints import ANYTHING, Choice, Switch, Whole, hyper, normalise_fields
from steep.core.dist.group import Distributed
from steep.core.method import Method, Moment
from steep.core.run.precision import PRECISIONS
from steep.core.views import VIEWS
from steep.errors import InputError

GUARDS = ("recover", "skip", "raise", "off")


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What is done with each batch. It changes the results, so it is saved with the state."""

    steps: int = hyper(1, Whole(least=1))
    episodic: bool = hyper(False, Switch())
    predict: Moment | None = hyper(None, Choice(*get_args(Moment), optional=True))
    seed: int = hyper(0, Whole(least=-(2**63), most=2**64 - 1))  # what a torch.Generator takes
    precision: str = hyper("float32", Choice(*PRECISIONS))
    guard: str = hyper("recover", Choice(*GUARDS))
    bad_images: str = hyper("raise", Choice("raise", "nan"))
    deterministic: bool = hyper(False, Switch())
    views: str | None = hyper(None, Choice(*VIEWS, optional=True))

    def __post_init__(self) -> None:
        """Refuse what cannot be, and store numbers of other libraries as Python's own."""
        normalise_fields(self)

    def for_method(self, method: Method[Any]) -> Self:
        """Answer before or after the update as the method's paper does, unless the caller has chosen."""
        return replace(self, predict=self.predict or method.predicts)


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How and where it is computed. The results stay the same up to rounding; `steep.resume` may choose anew."""

    device: torch.device | str | None = hyper(None, ANYTHING)  # checked where the model is brought to it
    compile: bool = hyper(False, Switch())
    graph: bool = hyper(False, Switch())
    recompute: bool = hyper(False, Switch())
    inplace: bool = hyper(False, Switch())
    distributed: Distributed = hyper(False, ANYTHING)

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        normalise_fields(self)
        if self.distributed and (self.compile or self.graph):
            raise InputError("distributed: ranks wait for each other inside a step. Leave compile and graph out")
