"""What do black borders in training do at test time? Whole pictures, normalised by the statistics of crops.

    python -m benchmarks.borders --weights WEIGHTS --root DATA --shifts clean fog --limit 1000 --out results/x.jsonl

Whoever trains on random crops out of a padded picture shows the model borders that no test picture has. Its running
statistics know them, those of a test batch do not. Each batch is answered with the running statistics (`source`), with
its own (`batch`), and with those of random crops of it, padded with zeros or mirrored: if the crops of the training
do better than the pictures themselves, the borders are what `bn` lacks. A row for each.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

import steep
from benchmarks.rows import append
from steep import provenance
from steep.bench.sources import weights_sha256
from steep.data import ImageSet, load, to_floats
from steep.training.augment import crops, draw, padded
from steep.training.spec import Border

STATISTICS = ("source", "batch", *get_args(Border))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar100-c")
    parser.add_argument("--model", default="wrn-28-10")
    parser.add_argument("--weights", type=Path, required=True, help="a file of the model's weights")
    parser.add_argument("--root", type=Path, help="where data lives")
    parser.add_argument("--shifts", nargs="+", default=["clean"])
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--limit", type=int, help="only the first so many images of a set")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--pad", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    source, digest = None, weights_sha256(args.weights)
    for shift in args.shifts:
        data = (
            load(args.data.removesuffix("-c"), root=args.root, limit=args.limit)
            if shift == "clean"
            else load(args.data, root=args.root, corruption=shift, severity=args.severity, limit=args.limit)
        )
        if source is None:
            source = steep.models.build(args.model, len(data.classes))
            steep.models.checkpoints.load(source, args.weights)
            source.to(args.device, memory_format=torch.channels_last)
        for statistics in STATISTICS:
            accuracy = right(source, data, statistics, args) / len(data)
            print(f"{shift:18} {statistics:8} {accuracy:.2%}", flush=True)
            row = {
                "benchmark": "borders", "data": args.data, "model": args.model, "shift": shift,
                "severity": 0 if shift == "clean" else args.severity, "statistics": statistics, "pad": args.pad,
                "batch": args.batch, "precision": "bfloat16", "seed": args.seed, "n": len(data), "accuracy": accuracy,
                "weights_sha256": digest, **provenance.stamp(args.device),
            }  # fmt: skip
            append(args.out, row)


def right(source: nn.Module, data: ImageSet, statistics: str, args: argparse.Namespace) -> int:
    """Count the right answers to a set's whole pictures, each batch normalised by the statistics named."""
    model = copy.deepcopy(source).eval()
    norms = nn.ModuleList(layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    for layer in norms:
        layer.momentum = 1.0  # a pass in training mode leaves the statistics of that pass alone
    images, labels = torch.from_numpy(data.images.copy()), torch.from_numpy(data.labels.copy())
    draws = draw(len(data), seed=args.seed, epoch=0, pad=args.pad, flip=True, device=images.device)
    correct = 0
    for start in range(0, len(data), args.batch):
        x, y = images[start : start + args.batch], labels[start : start + args.batch]
        if statistics != "source":
            norms.train()
            shown = x
            if statistics != "batch":
                choices = draws.batch(start, start + len(x))._replace(order=torch.arange(len(x)))
                shown = crops(padded(x, args.pad, statistics), choices, args.pad)  # type: ignore[arg-type]
            _answers(model, shown, args.device)
            norms.eval()
        correct += int((_answers(model, x, args.device).argmax(dim=1) == y).sum())
    return correct


def _answers(model: nn.Module, pixels: Tensor, device: str) -> Tensor:
    with torch.inference_mode(), torch.autocast(torch.device(device).type, torch.bfloat16):
        logits: Tensor = model(to_floats(pixels.to(device), memory_format=torch.channels_last))
    return logits.float().cpu()


if __name__ == "__main__":
    main()
