"""How much work a cell is, in forward passes of its model over its images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from steep.bench.device import now, precision
from steep.bench.spec import Cell
from steep.data.known import data_set
from steep.methods import make
from steep.models import build


def images(cell: Cell) -> int:
    """Count the images a cell answers; 0 where only the data itself can tell.

    >>> images(Cell(data="cifar10-c", shift="fog", severity=5, model="wrn-28-10", weights="", method="tea"))
    10000
    """
    data = data_set(cell.data)
    total = 0
    for shift, _ in cell.shifts:
        count = data.count("test", shift if data.domains else None) or cell.limit or 0
        total += min(count, cell.limit or count)
    if cell.protocol == "gradual":
        times = 2 * len(cell.shifts) - len({name for name, _ in cell.shifts})
        return total * times // max(1, len(cell.shifts))
    return total


def passes(cell: Cell) -> float:
    """Count forward passes per image, as the method declares them, and one for an answer after the update.

    >>> cell = Cell(data="cifar10-c", shift="fog", model="wrn-28-10", weights="", method="tea", predict="after")
    >>> passes(cell)
    45.0
    """
    hyper: dict[str, Any] = dict(cell.hyper)
    method = make(cell.method, cell.setting, **hyper)
    total = images(cell) or cell.batch_size or 1
    step = method.passes(min(cell.batch_size or total, total), total)
    return cell.steps * step + (cell.predict == "after" and method.moves)


def work(cell: Cell) -> float:
    """Forward passes of the whole cell."""
    return max(1, images(cell)) * passes(cell)


def forward_seconds(cell: Cell, device: torch.device | str = "cpu") -> float:
    """Measure what one image costs one forward pass of the cell's model on a device, with weights as initialised."""
    device = torch.device(device)
    data = data_set(cell.data)
    height, width, channels = data.shape or (32, 32, 3)
    side = (cell.size, cell.size) if cell.size else (height, width)
    size = min(cell.batch_size or 200, 200 if device.type == "cuda" else 8)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), precision(cell.precision, device):
        model = build(cell.model, data.class_count or 10, in_channels=cell.channels or channels)
        model = model.to(device).eval()
        x = torch.zeros(size, cell.channels or channels, *side, device=device)
        model(x)
        begun = now(device)
        model(x)
        return (now(device) - begun) / size


def seconds(cells: Iterable[Cell], device: torch.device | str = "cpu") -> float:
    """Estimate what cells take, from one measured forward pass of each model."""
    costs: dict[tuple[str, int | None, str], float] = {}
    total = 0.0
    for cell in cells:
        kind = (cell.model, cell.size, cell.data)
        if kind not in costs:
            costs[kind] = forward_seconds(cell, device)
        total += work(cell) * costs[kind]
    return total
