"""How a device computes for a cell: its precision, where the model lies, and its clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch
from torch import nn

from steep.bench.adapters import weight_dtype
from steep.bench.spec import Cell
from steep.core.run.precision import half_precision
from steep.errors import InputError

PRECISIONS = ("float32", "tf32", "bfloat16", "auto")


@contextlib.contextmanager
def precision(kind: str, device: torch.device) -> Iterator[None]:
    """Choose how a GPU multiplies float32, for as long as the context lasts: exactly, or (all others) in TF32."""
    if kind not in PRECISIONS:
        raise InputError(f"precision: expected one of {', '.join(PRECISIONS)}, got {kind!r}")
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    _set_tf32(kind != "float32", kind != "float32")
    try:
        yield
    finally:
        _set_tf32(*before)


def _set_tf32(matmul: bool, conv: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = conv


def place(model: nn.Module, cell: Cell, device: torch.device) -> nn.Module:
    """Put the model on the device; with tensor cores in play, in the layout they want."""
    tensor_cores = device.type == "cuda" and cell.precision != "float32"
    layout = torch.channels_last if tensor_cores else torch.contiguous_format
    placed: nn.Module = model.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    return placed


def precision_used(cell: Cell, model: nn.Module, device: torch.device) -> str:
    """Name the precision that was used in the end: `auto` depends on the device, and TF32 is of GPUs alone."""
    half = half_precision(weight_dtype(cell), next(model.parameters()))
    if half is not None:
        return str(half).removeprefix("torch.")
    return "tf32" if device.type == "cuda" and cell.precision != "float32" else "float32"


def now(device: torch.device) -> float:
    """Read the clock once the device has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
