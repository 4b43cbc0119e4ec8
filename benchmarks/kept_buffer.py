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
    args = parser.parse_args()
    sets = {
        name: load(args.data, root=args.root, corruption=name, severity=args.severity, limit=args.limit)
        for name in BENCHMARK
    }
    model = steep.models.build(args.model, len(next(iter(sets.values())).classes))
    steep.models.checkpoints.load(model, args.weights)
    digest = weights_sha256(args.weights)
    for method in args.methods:
        on_gpu = args.device.startswith("cuda")
        adapter = steep.adapt(
            model, method, seed=args.seed, device=args.device, precision="auto", guard="off", graph=on_gpu
        )
        for order in ("forward", "reverse"):
            names = list(sets) if order == "forward" else list(reversed(sets))
            for kept in (False, True):
                by_set = accuracies(adapter, {name: sets[name] for name in names}, args.batch, kept)
                mean = statistics.fmean(by_set.values())
                row = {
                    "benchmark": "kept-buffer", "data": args.data, "model": args.model, "severity": args.severity,
                    "method": method, "seed": args.seed, "batch": args.batch, "order": order, "kept": kept,
                    "weights_sha256": digest, "limit": args.limit,
                    "n": sum(len(data) for data in sets.values()), "mean": round(mean, 6), "accuracy": by_set,
                    **provenance.stamp(args.device),
                }  # fmt: skip
                print(f"{method:9} {order:8} {'kept' if kept else 'new':5} {mean:.2%}", flush=True)
                append(args.out, row)


def accuracies(adapter: steep.Adapter, sets: dict[str, Any], batch: int, kept: bool) -> dict[str, float]:
    """Adapt to each set from the source model; the chains are new each time, or those of the set before."""
    adapter.reset()
    by_set = {}
    for index, (name, data) in enumerate(sets.items()):
        chains = adapter._state.buffer.snapshot()  # type: ignore[attr-defined]
        adapter.reset()
        if kept and index:
            adapter._state.buffer.restore(chains)  # type: ignore[attr-defined]
        right = torch.zeros((), device=adapter.device)
        for x, y in batches(data, batch, device=adapter.device):
            right += (adapter(x).argmax(dim=1) == y).sum()
        by_set[name] = round(float(right) / len(data), 6)
    return by_set


if __name__ == "__main__":
    main()
