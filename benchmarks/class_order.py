"""What do batches of few classes do? The same images mixed, and class by class, as folders lie on disk.

    python -m benchmarks.class_order --data tiny-imagenet --size 32 --weights WEIGHTS --root DATA --out results/x.jsonl

The published comparison takes Tiny-ImageNet in the order of its folders: a batch of 1,000 then holds 20 of 200 classes,
and whatever normalises by the batch loses them. A row for each method and order: accuracy over the whole stream.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import steep
from benchmarks.rows import append
from steep import provenance
from steep.bench.sources import weights_sha256
from steep.data import batches, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="tiny-imagenet")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--model", default="wrn-28-10")
    parser.add_argument("--weights", type=Path, required=True, help="a file of the model's weights")
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--methods", nargs="+", default=["source", "bn"])
    parser.add_argument("--orders", nargs="+", choices=("mixed", "by-class"), default=["mixed", "by-class"])
    parser.add_argument("--batch", type=int, default=1000, help="of the paper's hyper-parameter table")
    parser.add_argument("--lr", type=float, default=1e-4, help="the same; of the methods that have one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = load(args.data, root=args.root, size=args.size)
    mixed = np.random.default_rng(args.seed).permutation(len(data))
    orders = {"mixed": mixed, "by-class": np.argsort(data.labels, kind="stable")}
    model = steep.models.build(args.model, len(data.classes), in_channels=data.images.shape[-1])
    steep.models.checkpoints.load(model, args.weights)
    digest = weights_sha256(args.weights)
    for method in args.methods:
        rate = {"lr": args.lr} if "lr" in steep.METHODS[method].__dataclass_fields__ else {}
        adapter = steep.adapt(model, method, seed=args.seed, device=args.device, precision="auto", guard="off", **rate)
        for order in args.orders:
            adapter.reset()
            right, classes = 0, []
            for x, y in batches(data, args.batch, device=args.device, order=orders[order]):
                right += int((adapter(x).argmax(dim=1) == y).sum())
                classes.append(len(y.unique()))
            row = {
                "benchmark": "class-order", "data": args.data, "size": args.size, "model": args.model,
                "method": method, "seed": args.seed, "batch": args.batch, "order": order, "n": len(data),
                "classes_a_batch": sum(classes) / len(classes), "accuracy": right / len(data), **rate,
                "weights_sha256": digest, **provenance.stamp(args.device),
            }  # fmt: skip
            print(f"{method:9} {order:9} {row['accuracy']:.2%}", flush=True)
            append(args.out, row)


if __name__ == "__main__":
    main()
