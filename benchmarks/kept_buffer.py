"""Does it matter that TEA's chains survive a reset? In the published code they do, so results depend on the order.

    python -m benchmarks.kept_buffer --weights WEIGHTS --root DATA --device cuda --out results/kept-buffer-h200.jsonl

The 15 corruptions at severity 5 in the paper's order and in the reverse, the model reset before each: once with new
chains, once with those of the corruption before. A row for each: accuracy per corruption and in the mean.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

import steep
from benchmarks.rows import append
from steep import provenance
from steep.bench.sources import weights_sha256
from steep.corruptions import BENCHMARK
from steep.data import batches, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10-c")
    parser.add_argument("--model", default="wrn-28-10")
    parser.add_argument("--weights", type=Path, required=True, help="a file of the model's weights")
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--methods", nargs="+", default=["tea", "tea-fast"])
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--limit", type=int, help="only the first so many images of a set")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    told = parser.parse_args()
    sets = {
        name: load(told.data, root=told.root, corruption=name, severity=told.severity, limit=told.limit)
        for name in BENCHMARK
    }
    model = steep.models.build(told.model, len(next(iter(sets.values())).classes))
    steep.models.checkpoints.load(model, told.weights)
    digest = weights_sha256(told.weights)
    for method in told.methods:
        on_gpu = told.device.startswith("cuda")
        adapter = steep.adapt(
            model, method, seed=told.seed, device=told.device, precision="auto", guard="off", graph=on_gpu
        )
        for order in ("forward", "reverse"):
            names = list(sets) if order == "forward" else list(reversed(sets))
            for kept in (False, True):
                found = accuracies(adapter, {name: sets[name] for name in names}, told.batch, kept)
                mean = statistics.fmean(found.values())
                row = {
                    "benchmark": "kept-buffer", "data": told.data, "model": told.model, "severity": told.severity,
                    "method": method, "seed": told.seed, "batch": told.batch, "order": order, "kept": kept,
                    "weights_sha256": digest, "limit": told.limit,
                    "n": sum(len(data) for data in sets.values()), "mean": round(mean, 6), "accuracy": found,
                    **provenance.stamp(told.device),
                }  # fmt: skip
                print(f"{method:9} {order:8} {'kept' if kept else 'new':5} {mean:.2%}", flush=True)
                append(told.out, row)


def accuracies(adapter: steep.Adapter, sets: dict[str, Any], batch: int, kept: bool) -> dict[str, float]:
    """Adapt to each set from the source model; the chains are new each time, or those of the set before."""
    adapter.reset()
    found = {}
    for index, (name, data) in enumerate(sets.items()):
        chains = adapter._state.buffer.snapshot()  # type: ignore[attr-defined]
        adapter.reset()
        if kept and index:
            adapter._state.buffer.restore(chains)  # type: ignore[attr-defined]
        right = torch.zeros((), device=adapter.device)
        for x, y in batches(data, batch, device=adapter.device):
            right += (adapter(x).argmax(dim=1) == y).sum()
        found[name] = round(float(right) / len(data), 6)
    return found


if __name__ == "__main__":
    main()
