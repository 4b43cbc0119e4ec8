"""Normalise by statistics that are in part those of the batch, and what that adds to the gradient.

Memory sets the pace of these layers, so each function passes over the features as seldom as it can, and on a GPU in
the type that they came in: its kernels take float16 and bfloat16 and compute in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class _MixedNorm(torch.autograd.Function):
    """y = (x − m) s + a with s = √((b + ε) / (v + ε)): what a layer normalises by a, b as if it normalised x by m, v.

    Of m = w · mean(x) + (1 − w) a, v = w c var(x) + (1 − w) b and g = ∂L/∂y, with sums over the N values of a channel:
    ∂L/∂x_i = s ( g_i − w/N · [ Σ g + c (x_i − mean(x)) / (v + ε) · Σ g (x − m) ] ).
    """

    @staticmethod
    def forward(x: Tensor, m: Tensor, v: Tensor, of_batch: Tensor, a: Tensor, b: Tensor, eps: float, *_: Any) -> Tensor:
        taken = x if m.dtype == torch.float32 else x.to(m.dtype)  # float32 parameters go with any type
        weight, bias = (b.to(m.dtype) + eps).sqrt(), a.to(m.dtype)
        return F.batch_norm(taken, m, v, weight, bias, training=False, eps=eps).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, m, v, of_batch, _, b, ctx.eps, ctx.each, ctx.spread = inputs
        ctx.save_for_backward(None if ctx.each is None else x, m, v, of_batch, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, m, v, of_batch, b = ctx.saved_tensors
        s = ((b.to(v.dtype) + ctx.eps) / (v + ctx.eps)).sqrt()
        if ctx.each is None:
            return (g * per_channel(s, g)).to(g.dtype), *[None] * 8
        along, across = sums(g, x, m)
        across = ctx.spread * across / (v + ctx.eps)
        return gradient(g, x, of_batch, ctx.each * along, ctx.each * across, s), *[None] * 8


normalise: Any = _MixedNorm.apply  # of x, m, v, mean(x), a, b, ε, w/N or None where m and v are constants, c


def moments(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Mean and biased variance (C,) of features x (B, C, ...)."""
    differentiable = torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad)
    if differentiable or x.device.type not in ("cpu", "cuda") or not x.numel():
        var, mean = torch.var_mean(x.to(dtype), dim=(0, *range(2, x.ndim)), correction=0)
    else:
        mean, var = torch.batch_norm_update_stats(_taken(x, dtype), None, None, 0.0)
    return mean, var


def sums(g: Tensor, x: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """Σ g and Σ g (x − center) of each channel."""
    g, x, one = _taken(g, center.dtype), _taken(x, center.dtype), torch.ones_like(center)
    if x.is_cuda:
        along, across, *_ = torch.batch_norm_backward_reduce(g, x, center, one, None, True, False, False)
    else:  # the gradient of a layer's bias and of its weight
        back, mask = torch.ops.aten.native_batch_norm_backward, [False, True, True]
        _, across, along = back(g, x, one, center, one, None, None, False, 0.0, mask)
    return along, across


def gradient(g: Tensor, x: Tensor, center: Tensor, along: Tensor, across: Tensor, s: Tensor) -> Tensor:
    """Give s · (g − along − (x − center) · across), all but g and x one number a channel."""
    kind, g, x = g.dtype, _taken(g, center.dtype), _taken(x, center.dtype)
    if x.is_cuda:
        count, one = torch.ones(1, dtype=torch.int32, device=x.device), torch.ones_like(center)
        return torch.batch_norm_backward_elemt(g, x, center, one, s, along, across, count).to(kind)
    offset, slope = s * (center * across - along), -s * across
    return torch.addcmul(per_channel(offset, g), g, per_channel(s, g)).addcmul_(x, per_channel(slope, g)).to(kind)


def per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Shape one value a channel such that it meets the channels of x (B, C, ...)."""
    return values.view(1, -1, *[1] * (x.ndim - 2))


def _taken(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x if x.is_cuda and dtype == torch.float32 else x.to(dtype)
