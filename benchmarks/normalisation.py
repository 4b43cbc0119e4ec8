"""How far corrupted, and how far wrongly scaled images are from the statistics of a model's first norm layer.

    python -m benchmarks.normalisation --root DATA --out results/input_scale.jsonl
    python -m benchmarks.normalisation --table results/input_scale.jsonl      # the Markdown table of docs/models.md

CIFAR-10's test images and the shipped WRN-40-2, which takes images in [0, 1]. `distance` is what core/input_scale.py
compares with FAR, `better` how many times closer the best of its rescalings comes, which it compares with BETTER.
"""

from __future__ import annotations

import argparse
import json
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor, nn

import steep
from benchmarks.rows import append
from steep import provenance
from steep.core.classifier import Classifier
from steep.core.io import input_scale
from steep.corruptions import BENCHMARK

MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in input_scale.IMAGENET)
FEEDS = {
    "in 0–255": lambda x: 255 * x,
    "normalised (ImageNet's numbers), for a model that takes [0, 1]": lambda x: (x - MEAN) / STD,
    "normalised by 0.5 and 0.5, for a model that takes [0, 1]": lambda x: (x - 0.5) / 0.5,
    "in [0, 1], for a model that wants ImageNet's numbers": lambda x: x * STD + MEAN,
}


def judged(x: Tensor, model: Classifier) -> tuple[float, float, bool]:
    """Distance, how much better the best rescaling is, and whether there would be a warning."""
    with input_scale.ScaleProbe(model) as probe:
        model(x)
    distance = float(probe.distances[0])
    first, _ = min(input_scale._distances(change(x), model) for change in input_scale._rescalings(x).values())
    return distance, distance / first, input_scale._by_statistics(x, model, probe) is not None


@torch.no_grad()
def measure(args: argparse.Namespace) -> None:
    whole = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(whole, Path(str(resources.files("steep") / "assets/cifar10-wrn-40-2.safetensors")))
    # the part that is looked at, and any two logits
    front = nn.Sequential(whole.conv1, whole.block1.layer[0], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))
    model = Classifier(front)
    pixels = steep.data.load("cifar10", "test", root=args.root, limit=args.images).images
    as_floats = lambda images: torch.from_numpy(images.copy()).permute(0, 3, 1, 2).float() / 255  # noqa: E731
    clean = as_floats(pixels)
    sets = {"clean": clean}
    sets |= {name: as_floats(steep.corrupt(pixels, name, 5, seed=0)) for name in BENCHMARK}
    sets |= {name: feed(clean) for name, feed in FEEDS.items()}
    for batch in args.batch:
        for name, x in sets.items():
            judgements = [judged(part, model) for part in x.split(batch) if len(part) == batch]
            row = {
                "benchmark": "normalisation",
                "images": name,
                "wrong": name in FEEDS,
                "batch": batch,
                "batches": len(judgements),
                "distance": [round(f([d for d, _, _ in judgements]), 3) for f in (min, max)],
                "better": [round(f([b for _, b, _ in judgements]), 3) for f in (min, max)],
                "warned": sum(w for _, _, w in judgements),
                "model": "wrn-40-2",
                "data": "cifar10 test",
                "versions": provenance.versions(),
                "commit": provenance.commit(),
            }
            print(batch, name, row["distance"], row["better"], row["warned"], "of", len(judgements), flush=True)
            append(args.out, row)


def table(path: Path) -> str:
    """Stored rows as a Markdown table; the corruptions together."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = ["| images | batch | distance | times closer | warned |", "|---|---:|---:|---:|---:|"]
    for batch in sorted({row["batch"] for row in rows}, reverse=True):
        here = [row for row in rows if row["batch"] == batch]
        groups = {"clean": [row for row in here if row["images"] == "clean"]}
        groups["15 corruptions, severity 5"] = [row for row in here if row["images"] in BENCHMARK]
        groups |= {row["images"]: [row] for row in here if row["wrong"]}
        for name, group in groups.items():
            spans = [
                f"{min(row[key][0] for row in group):.2f} – {max(row[key][1] for row in group):.2f}"
                for key in ("distance", "better")
            ]
            warned, count = (sum(row[key] for row in group) for key in ("warned", "batches"))
            lines.append(f"| {name} | {batch} | {spans[0]} | {spans[1]} | {warned} of {count} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the data sets are; default: as for `steep data`")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, nargs="+", default=[200, 16, 1])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, metavar="ROWS", help="print stored rows and measure nothing")
    args = parser.parse_args()
    if args.table:
        print(table(args.table))
    else:
        measure(args)


if __name__ == "__main__":
    main()
