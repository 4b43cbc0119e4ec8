"""BatchNorm statistics of a batch that several ranks share, and their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from steep.core import mixed_norm
from steep.core.dist.group import Scope


def normalise(layer: Any, x: Tensor, scope: Scope, mixing: Any) -> Tensor:
    """Let a BatchNorm layer normalise by the statistics of the whole batch, of which this rank holds a part.

    For one forward they take the place of the layer's running statistics, so its class may do whatever else it does.
    Torch treats running statistics as constants: `_StatisticsGradient` adds that they depend on x. `mixing` (a
    `layers.Mixing`) says how much they are mixed with the source statistics.
    """
    source = layer.running_mean, layer.running_var
    with torch.no_grad():
        kind = torch.promote_types(x.dtype, torch.float32 if source[0] is None else source[0].dtype)
        wide = torch.promote_types(kind, torch.float32)
        mean, var = mixed_norm.moments(x, wide)
        # moments of the parts add up; in float64 the variance survives the difference of two squares
        var, mean = var.double(), mean.double()
        moments = torch.cat([mean.new_ones(1), mean, var + mean.square()]) * len(x)
        moments = scope.group.sum_(torch.zeros_like(moments) if scope.blank else moments)
        images = moments[0]
        mean, square = (moments[1:] / images).chunk(2)
        values = images * x[0, 0].numel()
        spread = mixing.spread(values)  # from the biased variance to the one that is mixed
        of_batch, var = mean, (square - mean.square()).clamp_min(0) * spread
        share = torch.ones_like(images)
        if source[0] is not None:
            share = mixing.weight(images).clamp_max(1)
            mean = torch.where(share < 1, share * mean + (1 - share) * source[0], mean)
            var = torch.where(share < 1, share * var + (1 - share) * source[1], var)
        each = share / values  # how much one value weighs in the statistics
        mean, var, of_batch = (t.to(wide) for t in (mean, var, of_batch))
        pace = (spread / (var + layer.eps)).to(wide)
        if source[0] is not None:
            mixing.note(layer, mean, var)

    def put_back(*_: Any) -> None:
        hook.remove()
        layer._buffers.update(running_mean=source[0], running_var=source[1])

    layer.training = False
    layer._buffers.update(running_mean=mean.to(kind), running_var=var.to(kind))
    hook = layer.register_forward_hook(put_back, always_call=True)
    same: Tensor = _StatisticsGradient.apply(x, mean, pace, of_batch, each.to(wide), scope)  # type: ignore[no-untyped-call]
    return same


class _StatisticsGradient(torch.autograd.Function):
    """Pass x on unchanged, and add to its gradient what x does to all images of all ranks through the statistics.

    Of y = (x − m) / √(v + ε) · γ + β with m = (1 − w) · source + w · mean(x), v likewise, and g = ∂L/∂x for fixed m, v:
    ∂L/∂x_i = g_i − w/N · [ Σ g + s (x_i − mean) / (v + ε) · Σ g (x − m) ], the sums over all values of all ranks, s = 1
    or N / (N − 1) where the unbiased variance is mixed.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, pace: Tensor, of_batch: Tensor, each: Tensor, scope: Scope
    ) -> Tensor:
        ctx.save_for_backward(x, mean, pace, of_batch, each)
        ctx.scope = scope
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, pace, of_batch, each = ctx.saved_tensors
        sums = torch.cat(mixed_norm.sums(g, x, mean))
        scope = ctx.scope
        along, across = scope.group.sum_(torch.zeros_like(sums) if scope.blank else sums).chunk(2)
        if scope.blank:
            return torch.zeros_like(g), None, None, None, None, None
        one = torch.ones_like(mean)
        g = mixed_norm.gradient(g, x, of_batch, each * along, each * pace * across, one)
        return g, None, None, None, None, None
