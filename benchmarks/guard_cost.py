"""What the guard costs: images/s with it off, on `skip` and on `recover`, interleaved in one run.

    python -m benchmarks.guard_cost --device cpu --out results/guard-cost-cpu.jsonl

The shipped WRN-40-2 on random images: the guard does not care what they show.
"""

from __future__ import annotations

import argparse
import statistics
import time
from importlib import resources
from pathlib import Path

import torch

import steep
from benchmarks.rows import append
from steep import provenance

METHODS = {"tent": {}, "tea": {"sgld_steps": 3, "sgld_rate": 0.7, "chains": 50}}
GUARDS = ("off", "skip", "recover")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="wrn-40-2")
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--graph", action="store_true", help="record each step as a CUDA graph")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = steep.models.build(args.model, 10)
    if args.model == "wrn-40-2":  # the others stay as initialised: what a step costs does not depend on its weights
        weights = resources.files("steep") / "assets/cifar10-wrn-40-2.safetensors"
        steep.models.checkpoints.load(model, Path(str(weights)))
    stream = [torch.rand(args.batch, 3, 32, 32, device=args.device) for _ in range(args.batches)]

    def seconds(adapter: steep.Adapter) -> float:
        _wait(args.device)
        start = time.perf_counter()
        for x in stream:
            adapter(x)
        _wait(args.device)
        return time.perf_counter() - start

    how = {"device": args.device, "precision": args.precision, "graph": args.graph}
    for method, hyper in METHODS.items():
        adapters = {guard: steep.adapt(model, method, **how, guard=guard, **hyper) for guard in GUARDS}
        for adapter in adapters.values():
            seconds(adapter)
        took = {guard: [] for guard in GUARDS}
        for _ in range(args.repeats):
            for guard, adapter in adapters.items():
                took[guard].append(seconds(adapter))
        for guard in GUARDS:
            # the fastest of each: what a busy machine adds is not the guard's
            cost = min(took[guard]) / min(took["off"]) - 1
            row = {
                "benchmark": "guard-cost",
                "method": method,
                "hyper": hyper,
                "guard": guard,
                "cost": round(cost, 4),
                "seconds": [round(s, 4) for s in took[guard]],
                "median": round(statistics.median(took[guard]), 4),
                "batch": args.batch,
                "batches": args.batches,
                "model": args.model,
                "precision": args.precision,
                "graph": args.graph,
                **provenance.stamp(args.device),
            }
            print(
                f"{method:5} {guard:8} {min(took[guard]) / args.batches * 1000:9.1f} ms a batch {cost:+7.1%}",
                flush=True,
            )
            append(args.out, row)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
