"""How many pictures to adapt on at a time, where nobody asks for a number."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from steep.core.adapter import Adapter
from steep.predicting.pictures import Pictures

MOST = 200  # as in the papers
GRAPHS = 4  # of a batch that must fit: tent takes 1.2 of them, tea 2.3 (WRN-28-10, peak memory of the rows)
ELSEWHERE = 4 << 30  # bytes taken for free on a system that does not say


def fitting_pictures(source: Adapter, pictures: Pictures, size: int | None, channels: int) -> int:
    """Give the batch size for pictures of this size; where none is given, the first that can be read tells it."""
    order = pictures.order(False, 0)
    first = () if size else pictures.batches(order, size, channels, 1, {})
    sides = next((pixels.shape[1:3] for _, pixels in first), (size or 1, size or 1))
    return fitting(source.model, torch.zeros(1, channels, *sides, device=source.device))


def fitting(model: nn.Module, x: Tensor) -> int:
    """Give 200, halved until what a step keeps fits into the free memory; x (1, C, H, W) is one picture."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}  # address → bytes

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            graph = model(x.clone().requires_grad_())  # alive to the end: no address is used twice
    except (RuntimeError, ValueError, TypeError, IndexError):
        return MOST  # what is wrong is said when the batch is answered
    each = sum(size for address, size in kept.items() if address not in weights)
    del graph
    count, free = MOST, _free_memory(x.device)
    while count > 1 and GRAPHS * count * each > free:
        count //= 2
    return count


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        available = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        available = None
    return int(available[1]) << 10 if available else ELSEWHERE
