"""A long continual stream: does a method hold, with and without the guard?

    python -m benchmarks.long_stream --images 200000 --out results/long-stream-cpu.jsonl

A small model, trained on scikit-learn's digits, meets five corruptions in turn, never reset. A row per method, guard:
accuracy in every window of the stream, seconds per batch, memory, steps undone, recoveries.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import warnings
from pathlib import Path

import torch

import steep
from benchmarks.rows import append
from steep import provenance
from steep.data import load, to_device
from steep.training import TrainingSpec, train

SHIFTS = ("gaussian_noise", "impulse_noise", "contrast", "fog", "pixelate")
VARIANTS = {  # name → method and what is not its default
    **{name: (name, {}) for name in steep.METHODS},
    "tea": ("tea", {"sgld_steps": 3, "sgld_rate": 0.7, "chains": 50, "buffer_size": 1000}),
    "tent-hot": ("tent", {"lr": 0.1}),  # a hundred times the published rate: it learns, and then collapses
}


def trained() -> torch.nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "digits.safetensors"
        train(TrainingSpec.from_recipe("train-digits"), out)
        model = steep.models.build("wrn-10-1", 10, in_channels=1)
        steep.models.checkpoints.load(model, out)
    return model.eval()


def stream(images: int, batch: int, device: str, severity: int = 5):
    """Shifts of 10 batches each, in turn, every pass in a new order."""
    sets = []
    for shift in SHIFTS:
        part = load("digits-c", corruption=shift, severity=severity)
        sets.append((to_device(part.images.copy(), device), torch.from_numpy(part.labels.copy()).to(device)))
    order = torch.Generator().manual_seed(0)
    drawn = turn = 0
    while drawn < images:
        x, y = sets[turn % len(sets)]
        for _ in range(10):
            pick = torch.randint(len(x), (batch,), generator=order).to(device)
            yield x[pick], y[pick]
            drawn += batch
        turn += 1


def memory(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.memory_allocated()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def run(model, variant: str, guard: str, images: int, batch: int, device: str, windows: int = 20) -> dict:
    method, hyper = VARIANTS[variant]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = [to_device(load("digits", "train").images[:1000].copy(), device)]
        adapter = steep.adapt(
            model.to(device), method, guard=guard, source=source, graph=device.startswith("cuda"), **hyper
        )
    per = images // windows
    curve, seconds, memories = [], [], []
    right = torch.zeros((), device=device)
    n, recoveries, started = 0, 0, time.perf_counter()
    for x, y in stream(images, batch, device):
        right += (adapter(x).argmax(dim=1) == y).sum()
        n += len(y)
        recoveries += str(adapter.raw.steps[-1].note).startswith("recovered")
        if n >= per:
            curve.append(round(float(right) / n, 4))
            seconds.append(round((time.perf_counter() - started) / (n / batch), 6))
            memories.append(memory(device))
            right.zero_()
            n, started = 0, time.perf_counter()
    return {
        "benchmark": "long-stream",
        "variant": variant,
        "method": method,
        "guard": guard,
        "images": images,
        "batch": batch,
        "accuracy": round(sum(curve) / len(curve), 4),
        "curve": curve,
        "seconds_per_batch": seconds,
        "bytes": memories,
        "undone": adapter.last.undone,
        "recoveries": recoveries,
        "hyper": hyper,
        "graph": device.startswith("cuda"),
        **provenance.stamp(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--methods", default=",".join(VARIANTS))
    parser.add_argument("--guards", default="off,recover")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = trained()
    print(f"{'method':8} {'guard':8} accuracy  first  last   ms/batch first→last   MB first→last  undone recovered")
    for variant in args.methods.split(","):
        moves = steep.METHODS[VARIANTS[variant][0]].moves  # else there is nothing to guard
        for guard in args.guards.split(",") if moves else ["off"]:
            row = run(model, variant, guard, args.images, args.batch, args.device)
            ms, mb = [1000 * s for s in row["seconds_per_batch"]], [b / 1e6 for b in row["bytes"]]
            print(
                f"{variant:8} {guard:8} {row['accuracy']:8.1%} {row['curve'][0]:6.1%} {row['curve'][-1]:6.1%}"
                f" {ms[1]:9.2f} → {ms[-1]:6.2f} {mb[1]:9.0f} → {mb[-1]:5.0f} {row['undone']:7} {row['recoveries']:6}",
                flush=True,
            )
            append(args.out, row)


if __name__ == "__main__":
    main()
