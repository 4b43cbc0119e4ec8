"""In which precision the model runs.

bfloat16: the frozen convolutions and linear layers are held in it and activations flow in it; adapted parameters,
normalisation, statistics, optimiser, energies and logits stay in float32.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import nn
from torch.nn.functional import conv2d
from torch.nn.modules.conv import _ConvNd

from steep.core.layers import is_norm

PRECISIONS = ("auto", "float32", "bfloat16")


def half_precision(precision: str, like: torch.Tensor) -> torch.dtype | None:
    """Decide for a model whose weights are like this tensor; None for no half precision.

    "auto" takes bfloat16 where it is faster. A model that came in half precision keeps its own.
    """
    if like.dtype in (torch.float16, torch.bfloat16):
        return like.dtype
    if precision == "bfloat16":
        return torch.bfloat16
    if precision == "float32" or like.dtype != torch.float32:
        return None
    if like.device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(like.device) >= (8, 0) else None
    return torch.bfloat16 if like.device.type == "cpu" and _pays_on_this_cpu() else None


def lower(net: nn.Module, dtype: torch.dtype) -> None:
    """Hold frozen convolutions and linear layers in half precision, what adapts and normalises in float32.

    Half precision has no digits left for an update of a thousandth: an adapted parameter in it would never move.
    Call this once it is known which parameters adapt.
    """
    for module in net.modules():
        heavy = isinstance(module, (_ConvNd, nn.Linear))
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad or is_norm(module):
                if parameter.is_floating_point():
                    parameter.data = parameter.data.float()
            # a hook that computes the weight from another one, as the old spectral_norm, does it in float32
            elif heavy and name in ("weight", "bias") and parameter.dtype == torch.float32:
                parameter.data = parameter.data.to(dtype)
        if is_norm(module):
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    module._buffers[name] = buffer.float()


def arrange(net: nn.Module, *, fast: bool) -> torch.memory_format:
    """Choose how the model's weights and its images lie in memory: channels last where speed is asked for."""
    for module in net.modules():
        if isinstance(module, nn.GroupNorm) and _contiguous_on_cpu not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_contiguous_on_cpu)
    if not fast:
        return torch.preserve_format
    # `to` would refuse the five dimensions of a Conv3d
    net._apply(lambda tensor: tensor.to(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor)  # type: ignore[no-untyped-call]
    return torch.channels_last


def _contiguous_on_cpu(_: nn.Module, args: tuple[torch.Tensor, ...]) -> torch.Tensor | None:
    """Save the process: torch 2.13 segfaults on a CPU in GroupNorm's backward for channels-last input.

    That is where the input needs no gradient, as that of a model's first GroupNorm does here.
    """
    return args[0].contiguous() if args[0].device.type == "cpu" else None


@cache
def _pays_on_this_cpu() -> bool:
    """Measure, once per process: processors without AMX or AVX512-BF16 emulate bfloat16, several times slower."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    seconds, threads = {}, torch.get_num_threads()
    torch.set_num_threads(1)  # of several one may wait for other work on the machine, and that would be measured
    try:
        with torch.inference_mode():
            for dtype in (torch.float32, torch.bfloat16):
                # no layer: its weights would be drawn from the caller's random stream
                shapes = (16, 64, 16, 16), (64, 64, 3, 3)
                x, weight = (torch.ones(s, dtype=dtype).contiguous(memory_format=torch.channels_last) for s in shapes)
                times = []
                for _ in range(4):
                    start = time.perf_counter()
                    conv2d(x, weight, padding=1)
                    times.append(time.perf_counter() - start)
                seconds[dtype] = min(times)
    finally:
        torch.set_num_threads(threads)
    return seconds[torch.bfloat16] < 0.9 * seconds[torch.float32]
