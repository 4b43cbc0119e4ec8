"""Less memory for more time: blocks forget their activations and compute them again for the gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from steep.core.distributed import carried


@contextmanager
def recomputed(net: nn.Module) -> Iterator[None]:
    """Inside, each block of the network keeps its input only."""
    found = blocks(net)
    for block in found:
        block.forward = _Recomputed(block.forward)
    try:
        yield
    finally:
        for block in found:
            del block.forward  # the class's own shows again


class _Recomputed:
    def __init__(self, forward: Any) -> None:
        self.forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        how: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": carried}
        return checkpoint(self.forward, *args, **how, **kwargs)


def blocks(net: nn.Module) -> list[nn.Module]:
    """The outermost parts that stand in a row (in a Sequential or ModuleList) and have parts themselves.

    That is a residual block or a transformer layer in most models. A network without such rows is one block.
    """
    found: list[nn.Module] = []
    for child in net.children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)):
            for part in child:
                has_parts = any(True for _ in part.children())
                found += blocks(part) or ([part] if has_parts else [])
        else:
            found += blocks(child)
    return found
