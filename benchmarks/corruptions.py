"""Speed and statistics of the corruptions.

    python benchmarks/corruptions.py                          # images/s on the CPU, 32x32
    python benchmarks/corruptions.py --device cuda --count 65536 --out docs/corruptions_speed.jsonl
    python -m benchmarks.corruptions --original --count 2 --out docs/corruptions_speed_224.jsonl   # per core, 224x224
    python benchmarks/corruptions.py --device cuda --side 224 --count 2048 --jpeg-count 64 --out FILE
    python benchmarks/corruptions.py --table docs/corruptions_speed.jsonl   # the Markdown table of docs/corruptions.md
    python benchmarks/corruptions.py --statistics SET.npy --label cifar10   # into tests/corruptions/statistics.json

Times are wall clock, best of --repeats, for one call of corrupt() on images that already lie on the device, after
one call that fills the tables. Images are random bytes smoothed a little; only JPEG's time depends on content.
--original takes turns with the algorithms of ImageNet-C's script (original_corruptions.py) on the same pictures, both
on one thread. It counts the processor's time, not the clock's: other work on the machine then does not count.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steep.corruptions import BENCHMARK, CORRUPTIONS, corrupt, frost_source
from steep.corruptions.frost import procedural
from steep.provenance import commit

GROUPS = {
    "benchmark (15)": BENCHMARK,
    "benchmark but JPEG": tuple(name for name in BENCHMARK if name != "jpeg_compression"),
    "all (19)": CORRUPTIONS,
    "all but JPEG": tuple(name for name in CORRUPTIONS if name != "jpeg_compression"),
}
STATISTICS = Path(__file__).parent.parent / "tests" / "corruptions" / "statistics.json"


def synthetic(count: int, side: int) -> torch.Tensor:
    """Return smooth random pictures, uint8 (count, side, side, 3), cheap to make in any number."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(min(count, 1024), 3, 6, 6, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=False)
    fine = (fine + 0.03 * torch.randn(fine.shape, generator=generator)).clamp(0, 1)
    images = (fine * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    return images.repeat((count + len(images) - 1) // len(images), 1, 1, 1)[:count]


def seconds(images: torch.Tensor, name: str, severity: int, repeats: int) -> float:
    def wait() -> None:
        if images.is_cuda:
            torch.cuda.synchronize()

    best = float("inf")
    for _ in range(repeats + 1):  # the first, which fills tables and caches, is not the best
        wait()
        start = time.perf_counter()
        corrupt(images, name, severity)
        wait()
        best = min(best, time.perf_counter() - start)
    return best


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def facts(args: argparse.Namespace, images: torch.Tensor) -> dict[str, Any]:
    """Return what all rows of a run say alike."""
    return {
        "benchmark": "corruptions",
        "n": args.count,
        "side": args.side,
        "device": torch.cuda.get_device_name() if images.is_cuda else processor(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "repeats": args.repeats,
        "commit": commit(),
        "frost": frost_source(),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def append(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if args.out:
        with open(args.out, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def speed(args: argparse.Namespace) -> None:
    images = synthetic(args.count, args.side).to(args.device)
    common = facts(args, images)
    print(f"n={args.count} {args.side}x{args.side} on {common['device']}, torch {torch.__version__}, ", end="")
    print(f"{common['threads']} threads, frost: {common['frost']}; microseconds per image by severity, images/s")
    rows, totals = [], {}
    for name in args.only or CORRUPTIONS:
        count = min(args.count, args.jpeg_count) if name == "jpeg_compression" else args.count
        each = []
        for severity in args.severity:
            took = seconds(images[:count], name, severity, args.repeats)
            each.append(took / count)
            rows.append({**common, "n": count, "corruption": name, "severity": severity, "images_per_s": count / took})
        totals[name] = sum(each) / len(each)
        print(f"{name:18}" + "".join(f"{1e6 * t:9.2f}" for t in each) + f"{1 / totals[name]:14,.0f}", flush=True)
    for label, names in GROUPS.items():
        if all(name in totals for name in names):
            rate = len(names) / sum(totals[name] for name in names)
            print(f"{label:18}{rate:14,.0f} images/s")
            rows.append({**common, "corruption": label, "severity": args.severity, "images_per_s": rate})
    append(args, rows)


def against_original(args: argparse.Namespace) -> None:
    """Measure steep and the algorithms of ImageNet-C's script in turns, on one thread, in seconds of the processor."""
    from benchmarks import original_corruptions as original

    torch.set_num_threads(1)
    args.side = 224  # the only size that script knows
    images = synthetic(args.count, args.side)
    common = {**facts(args, images), "clock": "processor"}
    draws, rows = original.Draws(0, procedural()), []
    for name in args.only or BENCHMARK:
        for severity in args.severity:
            values = original.IMAGENET[name][severity - 1]
            best = [float("inf")] * 2
            for turn in range(args.repeats + 1):
                start = time.process_time()
                corrupt(images, name, severity)
                middle = time.process_time()
                for image in images.numpy() if turn else ():  # the first fills our tables
                    getattr(original, name)(image, values, draws)
                if turn:
                    best = [min(best[0], middle - start), min(best[1], time.process_time() - middle)]
            rates = [args.count / seconds for seconds in best]
            rows.append({**common, "corruption": name, "severity": severity, "images_per_s": rates[0]})
            rows[-1]["original_images_per_s"] = rates[1]
            print(f"{name:18}{severity:3}{rates[0]:10,.1f}{rates[1]:10,.1f}{rates[0] / rates[1]:8.1f} x", flush=True)
    append(args, rows)
    print(ratios(rows))


def ratios(rows: list[dict[str, Any]]) -> str:
    """Return rows of --original as a Markdown table: images/s of one core, from the mean time over the severities."""
    spent = {}
    for name in dict.fromkeys(row["corruption"] for row in rows):
        mine = [row for row in rows if row["corruption"] == name]
        spent[name] = np.mean([[1 / row["original_images_per_s"], 1 / row["images_per_s"]] for row in mine], axis=0)
    lines = ["| corruption at 224x224 | script's algorithm | steep | ratio |", "|---|---|---|---|"]
    groups = {
        "benchmark (15)": BENCHMARK,
        "benchmark but glass": tuple(name for name in BENCHMARK if name[:5] != "glass"),
    }
    for label, names in {**{name: (name,) for name in spent}, **groups}.items():
        if all(name in spent for name in names):
            theirs, ours = sum(spent[name] for name in names) / len(names)
            lines.append(f"| {label} | {1 / theirs:,.1f} | {1 / ours:,.1f} | {theirs / ours:.1f} |")
    return "\n".join(lines)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return stored rows as one Markdown table: a column per run, the mean time over the severities as images/s."""
    if all("original_images_per_s" in row for row in rows):
        return ratios(rows)
    runs: dict[str, dict[str, list[float]]] = {}
    heads: dict[str, str] = {}
    for row in rows:
        if row["corruption"] in GROUPS:
            continue  # added up below from the rows themselves
        each = runs.setdefault(row["time"], {}).setdefault(row["corruption"], [])
        each.append(1 / row["images_per_s"])
        if row["corruption"] == CORRUPTIONS[0]:  # JPEG may have had fewer pictures
            cores = f" on {row['cores']} cores" if "cores" in row else ""
            heads[row["time"]] = (
                f"{row['device']}, threads: {row['threads']}{cores}, n = {row['n']:,}, {row['frost']} frost"
            )
    lines = ["| corruption | " + " | ".join(heads[run] for run in runs) + " |", "|---" * (len(runs) + 1) + "|"]
    spent = {run: {name: sum(each) / len(each) for name, each in times.items()} for run, times in runs.items()}
    for label, names in {**{name: (name,) for name in CORRUPTIONS}, **GROUPS}.items():
        rates = (len(names) / sum(times[name] for name in names) for times in spent.values())
        lines.append(f"| {label} | " + " | ".join(f"{rate:,.0f}" for rate in rates) + " |")
    return "\n".join(lines)


def statistics(images: np.ndarray, seed: int = 0) -> dict[str, list[list[float]]]:
    """Return per corruption and severity: mean level, standard deviation, mean absolute distance to clean."""
    table = {}
    for name in CORRUPTIONS:
        rows = []
        for severity in range(1, 6):
            count, total, square, apart = 0, 0, 0, 0
            for start in range(0, len(images), 1000):
                clean = images[start : start + 1000]
                out = corrupt(clean, name, severity, seed, first=start).astype(np.int64)
                count += out.size
                total += int(out.sum())
                square += int((out * out).sum())
                apart += int(np.abs(out - clean).sum())
            mean = total / count
            rows.append([round(v, 3) for v in (mean, (square / count - mean * mean) ** 0.5, apart / count)])
        table[name] = rows
    return table


def write_statistics(args: argparse.Namespace) -> None:
    images = np.load(args.statistics, mmap_mode="r")
    stored = json.loads(STATISTICS.read_text()) if STATISTICS.exists() else {}
    stored[args.label] = {
        "images": len(images),
        "seed": 0,
        "frost": frost_source(),
        "columns": ["mean", "std", "mean absolute distance to clean"],
        "clean": [round(float(images.mean()), 3), round(float(images.std()), 3), 0.0],
        "severities": statistics(images),
    }
    write_table(stored)


def write_table(stored: dict[str, object]) -> None:
    """Write the table with one severity a line."""
    text = re.sub(r"\[\s+([^\[\]]*?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", json.dumps(stored, indent=1))
    STATISTICS.write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=2000, help="images per call")
    parser.add_argument("--jpeg-count", type=int, default=2000, help="at most this many for JPEG, always on the CPU")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--original", action="store_true", help="against the algorithms of ImageNet-C's script")
    parser.add_argument("--threads", type=int, help="of torch; default: torch's own choice")
    parser.add_argument("--severity", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--only", nargs="+", choices=CORRUPTIONS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", help="append one JSON row per corruption and severity to this file")
    parser.add_argument("--statistics", metavar="NPY", help="write the statistics of uint8 images (N, H, W, 3)")
    parser.add_argument("--table", metavar="ROWS", help="print stored rows as a Markdown table and measure nothing")
    parser.add_argument("--label", default="cifar10", help="name of that set in the table")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.table:
        print(markdown([json.loads(line) for line in Path(args.table).read_text().splitlines()]))
    elif args.statistics:
        write_statistics(args)
    elif args.original:
        against_original(args)
    else:
        speed(args)


if __name__ == "__main__":
    main()
