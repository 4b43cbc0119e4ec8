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
    told = parser.parse_args()
    source, digest = None, weights_sha256(told.weights)
    for shift in told.shifts:
        data = (
            load(told.data.removesuffix("-c"), root=told.root, limit=told.limit)
            if shift == "clean"
            else load(told.data, root=told.root, corruption=shift, severity=told.severity, limit=told.limit)
        )
        if source is None:
            source = steep.models.build(told.model, len(data.classes))
            steep.models.checkpoints.load(source, told.weights)
            source.to(told.device, memory_format=torch.channels_last)
        for statistics in STATISTICS:
            accuracy = right(source, data, statistics, told) / len(data)
            print(f"{shift:18} {statistics:8} {accuracy:.2%}", flush=True)
            row = {
                "benchmark": "borders", "data": told.data, "model": told.model, "shift": shift,
                "severity": 0 if shift == "clean" else told.severity, "statistics": statistics, "pad": told.pad,
                "batch": told.batch, "precision": "bfloat16", "seed": told.seed, "n": len(data), "accuracy": accuracy,
                "weights_sha256": digest, **provenance.stamp(told.device),
            }  # fmt: skip
            append(told.out, row)


def right(source: nn.Module, data: ImageSet, statistics: str, told: argparse.Namespace) -> int:
    """Count the right answers to a set's whole pictures, each batch normalised by the statistics named."""
    model = copy.deepcopy(source).eval()
    norms = nn.ModuleList(layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    for layer in norms:
        layer.momentum = 1.0  # a pass in training mode leaves the statistics of that pass alone
    images, labels = torch.from_numpy(data.images.copy()), torch.from_numpy(data.labels.copy())
    draws = draw(len(data), seed=told.seed, epoch=0, pad=told.pad, flip=True, device=images.device)
    found = 0
    for start in range(0, len(data), told.batch):
        x, y = images[start : start + told.batch], labels[start : start + told.batch]
        if statistics != "source":
            norms.train()
            shown = x
            if statistics != "batch":
                choices = draws.batch(start, start + len(x))._replace(order=torch.arange(len(x)))
                shown = crops(padded(x, told.pad, statistics), choices, told.pad)  # type: ignore[arg-type]
            _answers(model, shown, told.device)
            norms.eval()
        found += int((_answers(model, x, told.device).argmax(dim=1) == y).sum())
    return found


def _answers(model: nn.Module, pixels: Tensor, device: str) -> Tensor:
    with torch.inference_mode(), torch.autocast(torch.device(device).type, torch.bfloat16):
        logits: Tensor = model(to_floats(pixels.to(device), memory_format=torch.channels_last))
    return logits.float().cpu()


if __name__ == "__main__":
    main()
