"""Is a batch of photographs faster where freed memory stays with the process? (CPU, Linux)

    python -m benchmarks.freed_memory --out results/freed-memory-cpu.jsonl

ResNet-18 at 224 pixels, random weights, batches of 200: `source` and `tent`, in a process with the C library as it is
and in one after `keep_freed_memory`, in turn. A row per process: seconds a batch (the least of those timed), and the
most memory that it held.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import ResNetConfig, ResNetForImageClassification

import steep
from benchmarks.rows import append
from steep import provenance
from steep.cli.memory import keep_freed_memory

METHODS = ("source", "tent")


def resnet_18() -> ResNetForImageClassification:
    """As torchvision's; drawn at random."""
    shape = {"layer_type": "basic", "depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512]}
    return ResNetForImageClassification(ResNetConfig(embedding_size=64, num_labels=1000, **shape))


def measure(method: str, kept: bool, batch: int, times: int, out: Path | None) -> None:
    """Take the time of some batches, after one that does not count."""
    if kept and not keep_freed_memory():
        raise SystemExit("this system's C library cannot be asked to keep memory")
    adapter = steep.adapt(resnet_18(), method, precision="auto", guard="off")
    x, seconds = torch.rand(batch, 3, 224, 224), []
    for _ in range(1 + times):
        start = time.perf_counter()
        adapter(x)
        seconds.append(time.perf_counter() - start)
    row = {"benchmark": "freed-memory", "model": "resnet-18", "pixels": 224, "batch": batch, "method": method}
    row |= {"kept": kept, "ms_batch": round(1000 * min(seconds[1:]), 1), "times": times}
    row["peak_gib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    append(out, {**row, **provenance.stamp("cpu")})
    print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "KEPT"), help="this process measures one case only")
    arguments = parser.parse_args()
    if arguments.one is not None:
        measure(arguments.one[0], arguments.one[1] == "yes", arguments.batch, arguments.times, arguments.out)
        return
    for method in METHODS * arguments.rounds:
        for kept in ("no", "yes"):
            command = [sys.executable, "-m", "benchmarks.freed_memory", *sys.argv[1:], "--one", method, kept]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
