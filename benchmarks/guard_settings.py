"""How the default guard's settings are chosen: on the extra corruptions, never on the 15.

    python -m benchmarks.guard_settings --root DATA --out results/tried/guard-settings-cpu.jsonl --set PRIOR=0.5

CIFAR-10 under speckle noise, Gaussian blur, spatter and saturate at severity 5, and clean, with classes in even
order, in bursts (Dirichlet, 0.1) and sorted, in batches of 200, 50, 20 and 4; the shipped WRN-40-2. `--set` gives
constants of steep.core.run.trust or .watched other values. A row per stream and method; the source model has one too.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import steep
from benchmarks.rows import append
from steep import provenance
from steep.core.run import trust, watched
from steep.data import label_shift, load, to_device
from steep.methods import SOURCE
from steep.training.weights import find_weights

SHIFTS = ("clean", "speckle_noise", "gaussian_blur", "spatter", "saturate")


def orders(labels: Tensor) -> dict[str, Tensor]:
    """Give the places of the images in each kind of stream."""
    even = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    bursts = torch.from_numpy(label_shift(labels.numpy(), 0.1, seed=0))
    return {"even": even, "bursts": bursts, "sorted": even[labels[even].argsort(stable=True)]}


def accuracy(adapter: Any, x: Tensor, y: Tensor, batch: int) -> float:
    answers = [adapter(part).argmax(dim=1) for part in x.split(batch)]
    return round(float((torch.cat(answers) == y).float().mean()), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where CIFAR-10 lives (docs/data.md)")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", default="bn")
    parser.add_argument("--batches", default="200,50,20,4")
    parser.add_argument("--orders", default="even,bursts,sorted")
    parser.add_argument("--guard", default="recover")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--severity", type=int, default=5)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    settings = {name: float(value) for name, value in (pair.split("=") for pair in arguments.set)}
    for name, value in settings.items():
        module = trust if hasattr(trust, name) else watched
        getattr(module, name)  # a name that is not there would change nothing
        setattr(module, name, value)
    model = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(model, find_weights("cifar10-wrn-40-2", root=arguments.root))
    model = model.eval().to(arguments.device)
    for shift in SHIFTS:
        kind = {"corruption": shift, "severity": arguments.severity} if shift != "clean" else {}
        data = load("cifar10-c" if kind else "cifar10", root=arguments.root, limit=arguments.limit, **kind)
        images, labels = to_device(data.images, arguments.device), torch.from_numpy(data.labels)
        for order, places in orders(labels).items():
            if order not in arguments.orders.split(","):
                continue
            x, y = images[places.to(images.device)], labels[places].to(images.device)
            for batch in map(int, arguments.batches.split(",")):
                for method in arguments.methods.split(","):
                    guard = "off" if method == SOURCE else arguments.guard
                    adapter = steep.adapt(model, method, guard=guard, precision=arguments.precision)
                    about = {"kind": "guard-settings", "shift": shift, "order": order, "batch": batch, "n": len(y)}
                    about |= {"method": method, "guard": guard, "settings": settings, "precision": arguments.precision}
                    row = {**about, "accuracy": accuracy(adapter, x, y, batch)}
                    append(arguments.out, {**row, **provenance.stamp(arguments.device)})
                    print(f"{shift:14} {order:7} {batch:4} {method:9} {settings} {row['accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
