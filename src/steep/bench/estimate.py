"""How much work a cell is, in forward passes of its model over its images."""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch

from steep.bench.cell import precision
from steep.bench.spec import Cell
from steep.data.known import data_set
from steep.models import build

# Forward passes per image and step. A backward pass to the normalisation parameters costs about one forward more,
# one to all weights two; TEA's 45 (20 SGLD steps forward and back, two losses, one answer) is counted from Algorithm 1.
_PASSES = {"source": 1.0, "bn": 1.0, "dua": 1.0, "pl": 3.0, "sar": 4.0}
_ONE_BACKWARD = 2.0  # shot, tent, eta, eata and whatever comes


def images(cell: Cell) -> int:
    """Count the images a cell answers; 0 where only the data itself can tell.

    >>> images(Cell(data="cifar10-c", shift="fog", severity=5, model="wrn-28-10", weights="", method="tea"))
    10000
    """
    times = 2 * len(cell.shifts) - len({name for name, _ in cell.shifts}) if cell.protocol == "gradual" else None
    total = sum(_of_set(cell, shift) for shift, _ in cell.shifts)
    return total if times is None else total * times // max(1, len(cell.shifts))


def passes(cell: Cell) -> float:
    """Count forward passes per image.

    >>> cell = Cell(data="cifar10-c", shift="fog", model="wrn-28-10", weights="", method="tea", predict="after",
    ...             hyper=(("chains", None), ("sgld_steps", 20)))
    >>> passes(cell)
    45.0
    """
    hyper = dict(cell.hyper)
    if cell.method == "tea":
        chains = hyper.get("chains") or cell.batch_size or images(cell)
        share = float(str(chains)) / (cell.batch_size or images(cell) or 1)
        step = share * (2 * float(str(hyper.get("sgld_steps", 20))) + 2) + 2
    else:
        step = _PASSES.get(cell.method, _ONE_BACKWARD)
    answer = 1.0 if cell.predict == "after" and cell.method not in ("source", "bn") else 0.0
    return cell.steps * step + answer


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
        begun = _now(device)
        model(x)
        return (_now(device) - begun) / size


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


def _of_set(cell: Cell, shift: str) -> int:
    data = data_set(cell.data)
    count = data.count("test", shift if data.domains else None) or cell.limit or 0
    return min(count, cell.limit or count)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
