"""In which precision the model runs.

bfloat16: the frozen convolutions and linear layers are held in it and activations flow in it; adapted parameters,
normalisation, statistics, optimiser, energies and logits stay in float32.
"""

from __future__ import annotations

import time
from functools import cache

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from steep.errors import InputError

PRECISIONS = ("auto", "float32", "bfloat16")


def use_bfloat16(precision: str, like: torch.Tensor) -> bool:
    """Decide for a model whose weights are like this tensor. "auto" takes bfloat16 where it is faster."""
    if precision not in PRECISIONS:
        raise InputError(f"precision: expected one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision != "auto":
        return precision == "bfloat16"
    if like.dtype != torch.float32:
        return False  # the caller chose a precision already
    if like.device.type == "cuda":
        return torch.cuda.get_device_capability(like.device) >= (8, 0)
    return like.device.type == "cpu" and _pays_on_this_cpu()


def lower(net: nn.Module) -> None:
    """Hold the frozen weights in bfloat16. Call it once it is known which parameters adapt."""
    for module in net.modules():
        if isinstance(module, (_ConvNd, nn.Linear)):
            for parameter in module.parameters(recurse=False):
                if not parameter.requires_grad and parameter.dtype == torch.float32:
                    parameter.data = parameter.data.bfloat16()


def arrange(net: nn.Module, *, fast: bool) -> torch.memory_format:
    """Choose how the model's weights and its images lie in memory: channels last where speed is asked for.

    On a CPU, torch 2.13 ends the process with a segmentation fault in GroupNorm's backward when its input is channels
    last and needs no gradient, as that of a first GroupNorm does here. Such models are kept contiguous, always.
    """
    layout = torch.channels_last if fast else torch.preserve_format
    on_cpu = all(p.device.type == "cpu" for p in net.parameters())
    if on_cpu and any(isinstance(m, nn.GroupNorm) for m in net.modules()):
        layout = torch.contiguous_format
    if layout is not torch.preserve_format:
        net.to(memory_format=layout)  # type: ignore[call-overload]
    return layout


@cache
def _pays_on_this_cpu() -> bool:
    """Measure, once per process: processors without AMX or AVX512-BF16 emulate bfloat16, several times slower."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    seconds = {}
    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            conv = nn.Conv2d(64, 64, 3, padding=1).to(dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
            x = torch.ones(16, 64, 16, 16, dtype=dtype).contiguous(memory_format=torch.channels_last)
            times = []
            for _ in range(4):
                start = time.perf_counter()
                conv(x)
                times.append(time.perf_counter() - start)
            seconds[dtype] = min(times)
    return seconds[torch.bfloat16] < 0.9 * seconds[torch.float32]
