"""How much work a cell is, in forward passes of its model over its images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from steep.bench.adapters import now, precision
from steep.bench.spec import Cell
from steep.core.views import VIEWS
from steep.data.known import data_set
from steep.methods import make
from steep.models import build

TIMINGS = 4  # of a forward pass; the least counts


def images(cell: Cell) -> int:
    """Count the images a cell answers; 0 where only the data itself can tell."""
    data = data_set(cell.data)
    total = 0
    for shift, _ in cell.shifts:
        count = data.count("test", shift if data.domains else None) or cell.limit or 0
        total += min(count, cell.limit or count)
    if cell.protocol == "gradual":
        times = 2 * len(cell.shifts) - len({name for name, _ in cell.shifts})
        return total * times // max(1, len(cell.shifts))
    return total * (cell.rounds or 1)


def passes(cell: Cell) -> float:
    """Count forward passes per image: those the method declares, one for an answer after the update, one for a view."""
    hyper: dict[str, Any] = dict(cell.hyper)
    method = make(cell.method, cell.setting, **hyper)
    total = images(cell) or cell.batch_size or 1
    step = method.passes(min(cell.batch_size or total, total), total)
    views = len(VIEWS[cell.views](torch.zeros(1, 1, 1, 1))) if cell.views else 0
    answer = method.answer_passes() if cell.predict == "after" and method.moves else 0
    return cell.steps * step + answer + views


def work(cell: Cell) -> float:
    """Forward passes of the whole cell."""
    return max(1, images(cell)) * passes(cell)


def forward_seconds(cell: Cell, device: torch.device | str = "cpu") -> float:
    """Measure what one image costs one forward pass of the cell's model on a device, with weights as initialised.

    In batches of the cell's size, or as many images as take a third of a second; the least of several timings, since
    the machine may be busy with something else for a while.
    """
    device = torch.device(device)
    data = data_set(cell.data)
    height, width, channels = data.shape or (32, 32, 3)
    shape = (cell.channels or channels, cell.size or height, cell.size or width)
    batch = cell.batch_size or 200

    def timed(size: int) -> float:
        x = torch.zeros(size, *shape, device=device)
        begun = now(device)
        model(x)
        return (now(device) - begun) / size

    with torch.no_grad(), torch.random.fork_rng(devices=[]), precision(cell.precision, device):
        model = build(cell.model, data.class_count or 10, in_channels=shape[0]).to(device).eval()
        few = min(batch, 8)
        timed(few)  # the first pass also loads kernels
        size = min(batch, max(few, int(1 / max(3 * timed(few), 1e-9))))
        return min(timed(size) for _ in range(TIMINGS))


def seconds(cells: Iterable[Cell], device: torch.device | str = "cpu") -> float:
    """Estimate what cells take, from measured forward passes of each model."""
    costs: dict[tuple[str, int | None, str, int], float] = {}
    total = 0.0
    for cell in cells:
        kind = (cell.model, cell.size, cell.data, cell.batch_size)
        if kind not in costs:
            costs[kind] = forward_seconds(cell, device)
        total += work(cell) * costs[kind]
    return total
