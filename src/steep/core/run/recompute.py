"""Less memory for more time: blocks forget their activations and compute them again for the gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


@contextmanager
def recomputed(net: nn.Module) -> Iterator[None]:
    """Inside, each block of the network keeps its input only."""
    forwards = {block: vars(block).get("forward") for block in blocks(net)}  # another library may have put one there
    for block in forwards:
        block.forward = _Recomputed(block.forward)
    try:
        yield
    finally:
        for block, forward in forwards.items():
            del block.forward  # the class's own shows again
            if forward is not None:
                block.forward = forward


class _Recomputed:
    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # on a GPU the gradient is taken in another thread, which knows none of this one's context variables
        run = copy_context().run
        return checkpoint(run, self.apart, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    def apart(self, *args: Any, **kwargs: Any) -> Any:
        """Work on copies: a block that writes into its input would find another the second time."""
        return self.forward(*(arg.clone() if isinstance(arg, Tensor) else arg for arg in args), **kwargs)


def blocks(net: nn.Module) -> list[nn.Module]:
    """The innermost parts that stand in a row (in a Sequential or ModuleList) and have several layers with weights.

    That is a residual block or a transformer layer in most models. A network without such rows has none.
    """
    rows: dict[nn.Module, None] = {}  # a block may stand in several places
    parts = list(net) if isinstance(net, (nn.Sequential, nn.ModuleList)) else []
    for child in parts or net.children():
        inner = blocks(child)
        rows.update(dict.fromkeys(inner))
        if parts and not inner and _weights(child) > 1:
            rows[child] = None
    return list(rows)


def _weights(part: nn.Module) -> int:
    return sum(isinstance(layer, (nn.modules.conv._ConvNd, nn.Linear)) for layer in part.modules())
