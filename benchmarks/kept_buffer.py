"""Does it matter that TEA's chains survive a reset? In the published code they do, so results depend on the order.

    python -m benchmarks.kept_buffer --weights WEIGHTS --root DATA --device cuda --out results/kept-buffer-h200.jsonl

The 15 corruptions at severity 5 in the paper's order and in the reverse, the model reset before each: once with new
chains, once with those of the corruption before. A row for each: accuracy per corruption and in the mean.

The published code's chains are as old as 75 whole sets make them: drawn 20 times each between two restarts. On a few
short sets a buffer as small as `--set buffer_size=200` lets them grow as old. `--kept-optimizer` keeps the moments of
Adam as well, which no state of the published code does.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import torch

import steep
from benchmarks.rows import append
from steep import provenance, recipes
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
    parser.add_argument("--shifts", nargs="+", default=list(BENCHMARK), help="corruptions, in the order forward")
    parser.add_argument("--orders", nargs="+", default=["forward", "reverse"], choices=["forward", "reverse"])
    parser.add_argument("--set", action="append", default=[], help="of every method, such as buffer_size=200")
    parser.add_argument("--kept-optimizer", action="store_true", help="keep Adam's moments too, alone and with both")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--limit", type=int, help="only the first so many images of a set")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    sets = {
        name: load(args.data, root=args.root, corruption=name, severity=args.severity, limit=args.limit)
        for name in args.shifts
    }
    model = steep.models.build(args.model, len(next(iter(sets.values())).classes))
    steep.models.checkpoints.load(model, args.weights)
    digest = weights_sha256(args.weights)
    hyper = dict(recipes.assignment(text) for text in args.set)
    parts: list[tuple[str, ...]] = [(), ("buffer",)]
    if args.kept_optimizer:
        parts += [("optimizer",), ("buffer", "optimizer")]
    for method in args.methods:
        on_gpu = args.device.startswith("cuda")
        adapter = steep.adapt(
            model, method, seed=args.seed, device=args.device, precision=args.precision, guard="off", graph=on_gpu,
            **hyper,
        )  # fmt: skip
        for order in args.orders:
            names = list(sets) if order == "forward" else list(reversed(sets))
            for kept in parts:
                by_set = accuracies(adapter, {name: sets[name] for name in names}, args.batch, kept)
                mean = statistics.fmean(by_set.values())
                row = {
                    "benchmark": "kept-buffer", "data": args.data, "model": args.model, "severity": args.severity,
                    "method": method, "hyper": hyper, "seed": args.seed, "batch": args.batch, "order": order,
                    "kept": "buffer" in kept, "kept_optimizer": "optimizer" in kept,
                    "weights_sha256": digest, "limit": args.limit,
                    "n": sum(len(data) for data in sets.values()), "mean": round(mean, 6), "accuracy": by_set,
                    **provenance.stamp(args.device),
                }  # fmt: skip
                print(f"{method:9} {order:8} {' and '.join(kept) or 'nothing':20} kept {mean:.2%}", flush=True)
                append(args.out, row)


def accuracies(adapter: steep.Adapter, sets: dict[str, Any], batch: int, kept: tuple[str, ...]) -> dict[str, float]:
    """Adapt to each set from the source model; the parts of the state named in `kept` are those of the set before."""
    adapter.reset()
    by_set = {}
    for index, (name, data) in enumerate(sets.items()):
        before = adapter._state.snapshot() if kept and index else {}
        adapter.reset()
        if before:
            adapter._state.restore({**adapter._state.snapshot(), **{part: before[part] for part in kept}})
        right = torch.zeros((), device=adapter.device)
        for x, y in batches(data, batch, device=adapter.device):
            right += (adapter(x).argmax(dim=1) == y).sum()
        by_set[name] = round(float(right) / len(data), 6)
    return by_set


if __name__ == "__main__":
    main()
