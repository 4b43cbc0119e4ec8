"""What a bench costs over the bare adapter loop: metrics, a row, an fsync.

python -m benchmarks.harness_cost cuda 2000 wrn-28-10 tf32     # prints JSON
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import steep
from steep.bench import cell as one
from steep.bench.adapters import precision
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.data import batches


def measure(device: str, images: int, model: str, precision: str, repeats: int = 3) -> dict[str, Any]:
    """Time both ways in turn, the best of each: the bare loop, and a cell run and stored."""
    draw = np.random.default_rng(0)
    costs: dict[str, Any] = {"device": device, "model": model, "images": images, "precision": precision}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "set.npz"
        np.savez(root, images=draw.integers(0, 256, (images, 32, 32, 3), np.uint8), labels=np.arange(images) % 10)
        cell = Cell(
            data="arrays", shift="clean", model=model, weights="untrained", method="source", precision=precision
        )
        disk, where = Sources(root), torch.device(device)
        net = disk.model(cell, data := disk.images(cell, "clean", 0))
        with Store(folder) as store:
            one.run(cell, disk, where)  # the source row comes first in every grid
            for method in ("tent", "tea"):
                chosen = replace(cell, method=method, predict=steep.METHODS[method].predicts)
                bare, whole = [], []
                for turn in range(repeats + 1):
                    bare.append(_bare(net, method, data, chosen, where))
                    begun = time.perf_counter()
                    store.append(one.run(replace(chosen, seed=turn), disk, where, lambda *tick: None))
                    whole.append(time.perf_counter() - begun)
                best = min(bare[1:]), min(whole[1:])
                costs[method] = {"bare_s": best[0], "cell_s": best[1], "overhead": best[1] / best[0] - 1}
    return costs


def _bare(net: torch.nn.Module, method: str, data: Any, cell: Cell, device: torch.device) -> float:
    with precision(cell.precision, device):
        _sync(device)
        begun = time.perf_counter()
        weights = "float32" if cell.precision == "tf32" else cell.precision
        adapter = steep.adapt(net, method, precision=weights, guard=cell.guard)
        right = torch.zeros((), device=device)
        for x, y in batches(data, cell.batch_size, device=device):
            right += (adapter(x).argmax(1) == y).sum()
        float(right)
        _sync(device)
        return time.perf_counter() - begun


def _sync(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    costs = measure(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
    print(json.dumps(costs | {"name": torch.cuda.get_device_name() if sys.argv[1] == "cuda" else "cpu"}))
