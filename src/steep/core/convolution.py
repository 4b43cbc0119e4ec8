"""Frozen 3 × 3 convolutions, by whichever of two equal kernels is faster.

A convolution of stride 1 is also the input gradient of another one, with its weights turned by 180° and its channels
swapped. cuDNN has separate kernels for the two, and on an H200 in bfloat16 the gradient's are up to 1.45 × as fast for
the very same sum. So a frozen layer keeps its weights both ways round and takes the faster kernel each way.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d


class TurnedConv2d(nn.Conv2d):
    """A Conv2d whose forward is computed as an input gradient. Made by `turn`, from a layer that fits."""

    turned: Tensor  # the weights, turned and swapped; no buffer: it is no state

    def forward(self, input: Tensor) -> Tensor:
        """The convolution, and its bias."""
        weight, turned = self.weight, self.turned
        if torch.is_autocast_enabled(input.device.type):
            dtype = torch.get_autocast_dtype(input.device.type)
            input, weight, turned = input.to(dtype), weight.to(dtype), turned.to(dtype)
        y: Tensor = _Turned.apply(input, weight, turned, self.padding[0])  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias.view(1, -1, 1, 1).to(y.dtype)


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, turned: Tensor, padding: int) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weight)
        ctx.padding = padding
        return conv_transpose2d(x, turned, padding=padding)

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[no-untyped-def]
        (weight,) = ctx.saved_tensors
        return conv_transpose2d(dy, weight, padding=ctx.padding), None, None, None


def fits(layer: nn.Module) -> bool:
    """Whether a layer is a frozen convolution that keeps the size of its images."""
    return (
        type(layer) is nn.Conv2d
        and not layer.weight.requires_grad
        and layer.stride == (1, 1)
        and layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and layer.kernel_size[0] == layer.kernel_size[1] > 1
        and layer.padding in [(layer.kernel_size[0] // 2,) * 2, "same"]
        and layer.kernel_size[0] % 2 == 1
    )


@torch.no_grad()
def turn(layer: nn.Conv2d) -> None:
    """Let a layer compute its forward the other way round."""
    turned = layer.weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    layer.padding = (layer.kernel_size[0] // 2,) * 2
    layer.__class__ = TurnedConv2d
    layer.turned = turned


def turn_back(net: nn.Module) -> None:
    """Make every layer an ordinary convolution again."""
    for layer in net.modules():
        if type(layer) is TurnedConv2d:
            layer.__class__ = nn.Conv2d  # type: ignore[assignment]
            del layer.turned
