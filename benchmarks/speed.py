"""How fast adaptation is: images/s, memory and share of the machine's own matrix-product ceiling.

    python -m benchmarks.speed                                     # a CPU, some minutes; `make bench`
    python -m benchmarks.gpu --out results/speed-h200.jsonl        # a GPU

Every cell is measured in one run beside a plain float32 eager TEA (benchmarks/plain.py), the baseline of each ratio.
Images are random: the work does not depend on what they show.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import steep
from benchmarks.plain import PlainTEA
from benchmarks.rows import append
from steep import provenance
from steep.core.run.precision import half_precision
from steep.core.settings import GUARDS

METHODS = ("source", "bn", "tent", "sar", "energy", "tea", "tea-fast", "infuse")
MODES: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"precision": "bfloat16"},
    "auto": {"precision": "auto"},
    "graph": {"precision": "bfloat16", "graph": True},
    "compile": {"precision": "bfloat16", "compile": True},
    "auto+compile": {"precision": "auto", "compile": True},
    "compile+graph": {"precision": "bfloat16", "compile": True, "graph": True},
}
PLAIN = "plain tea"
COLUMNS = {"images_per_s": ",.0f", "over_plain": ".2f", "ms": ".1f", "gib": ".2f", "tflops": ".1f", "of_ceiling": ".0%"}


def main(device: str = "cpu") -> None:
    """Measure what the command line asks for, print a table and append rows."""
    on_gpu = device == "cuda"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=device)
    parser.add_argument("--models", nargs="+", default=["wrn-28-10", "wrn-40-2"] if on_gpu else ["wrn-40-2"])
    parser.add_argument("--batches", nargs="+", type=int, default=[50, 200, 1000] if on_gpu else [200])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    # cuDNN keeps the first kernel a process took for a shape: those that let it try all must come first
    modes = ["compile+graph", "graph", "bfloat16", "float32"] if on_gpu else ["float32", "auto"]
    parser.add_argument("--modes", nargs="+", default=modes, choices=MODES)
    parser.add_argument("--size", type=int, default=32, help="side of the images")
    parser.add_argument("--seconds", type=float, default=1.0, help="least time that a cell is measured for")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=NUMBER", help="of the methods that have them")
    parser.add_argument("--predict", choices=("before", "after"), help="answer so, not as the method does by itself")
    parser.add_argument("--guard", choices=GUARDS, default="skip", help="what it costs: benchmarks/guard_cost.py")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    where = torch.device(args.device)
    rows = []
    for row in cells(args, where):
        append(args.out, row)
        rows.append(row)
        Console(stderr=True).print(f"[dim]{row['model']} {row['batch']} {row['method']} {row['mode']}: {row['ms']} ms")
    table = Table("model", "batch", "method", "mode", *(name.replace("_", " ") for name in COLUMNS))
    for row in rows:
        numbers = (format(row[name], form) for name, form in COLUMNS.items())
        table.add_row(row["model"], str(row["batch"]), row["method"], row["mode"], *numbers)
    Console(width=130).print(table)


def cells(args: argparse.Namespace, where: torch.device) -> Iterator[dict[str, Any]]:
    """Measure every cell of the grid, the plain baseline first."""
    hyper = {name: float(value) if "." in value else int(value) for name, value in (s.split("=") for s in args.set)}
    ceilings = {dtype: matrix_ceiling(where, dtype) for dtype in (torch.float32, torch.bfloat16)}
    shared = {
        "benchmark": "speed",
        "size": args.size,
        **provenance.stamp(where),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for name in args.models:
        forward = forward_flops(name, args.size)
        for batch in args.batches:
            x = torch.rand(batch, 3, args.size, args.size, device=where)
            plain = 0.0
            for method, mode in [(PLAIN, "float32"), *((m, mode) for m in args.methods for mode in args.modes)]:
                fields = () if method == PLAIN else steep.METHODS[method].__dataclass_fields__
                chosen = {name: value for name, value in hyper.items() if name in fields}
                warm = 5 if where.type == "cuda" or "compile" in mode else 1
                options = {"guard": args.guard} | ({} if args.predict is None else {"predict": args.predict})
                adapter = partial(_made, name, method, mode, chosen | options, where)
                seconds = timed(adapter, x, args.seconds, warm)
                rate = batch / seconds["each"]
                plain = plain or rate
                low = half_precision(MODES[mode].get("precision", "float32"), x) is not None  # images are like weights
                tflops = forward * passes(method, chosen, batch, args.predict) / seconds["each"] / 1e12
                ceiling = ceilings[torch.bfloat16 if low else torch.float32]
                memory = provenance.peak_memory(where)
                yield {
                    **shared,
                    "model": name,
                    "batch": batch,
                    "method": method,
                    "mode": mode,
                    "hyper": chosen,
                    **options,
                    "images_per_s": round(rate, 1),
                    "over_plain": round(rate / plain, 3),
                    "ms": round(seconds["each"] * 1e3, 3),
                    "start_s": round(seconds["first"], 2),
                    "start_batches": warm,
                    "batches": int(seconds["batches"]),
                    "gib": round(int(memory["bytes"]) / 2**30, 3),
                    "memory_of": memory["of"],
                    "tflops": round(tflops, 2),
                    "ceiling_tflops": round(ceiling, 1),
                    "of_ceiling": round(tflops / ceiling, 3),
                }


def _made(name: str, method: str, mode: str, hyper: dict[str, Any], where: torch.device) -> Callable[[Tensor], Tensor]:
    torch.manual_seed(0)
    model = steep.models.build(name, 10).to(where)
    return PlainTEA(model) if method == PLAIN else steep.adapt(model, method, inplace=True, **MODES[mode], **hyper)


def timed(make: Callable[[], Callable[[Tensor], Tensor]], x: Tensor, least: float, warm: int) -> dict[str, float]:
    """Seconds of the first, `warm` batches in which all is compiled and recorded, and of each later one."""
    gc.collect()
    if x.is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    adapter = make()
    begun = time.perf_counter()
    for _ in range(warm):
        adapter(x)
    _wait(x.device)
    first = time.perf_counter() - begun
    count, begun = 0, time.perf_counter()
    while count < 2 or time.perf_counter() - begun < least:
        adapter(x)
        count += 1
        if count % 5 == 0:
            _wait(x.device)  # else the host runs far ahead of the clock
    _wait(x.device)
    return {"first": first, "each": (time.perf_counter() - begun) / count, "batches": count}


def forward_flops(name: str, size: int) -> int:
    """Floating-point operations of the model on one image, counted without computing any."""
    with torch.device("meta"):
        model, x = steep.models.build(name, 10).eval(), torch.empty(1, 3, size, size)
    with FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops()


def passes(method: str, hyper: dict[str, Any], batch: int, predict: str | None = None) -> float:
    """Images that go through the model, forward or backward: frozen weights take no gradient, so the two cost alike."""
    made = steep.METHODS["tea" if method == PLAIN else method](**hyper)
    answer = made.moves and (predict or made.predicts) == "after"
    return (made.passes(batch, batch) + answer) * batch


def matrix_ceiling(where: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a large matrix product: what no convolution beats. Float32 as convolutions do it, in TF32 on a GPU."""
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32
    n, count = (8192, 10) if where.type == "cuda" else (2048, 3)
    a, b = (torch.randn(n, n, device=where, dtype=dtype) for _ in range(2))
    for timed_run in (False, True):
        _wait(where)
        begun = time.perf_counter()
        for _ in range(count if timed_run else 2):
            a @ b
        _wait(where)
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return 2 * n**3 * count / (time.perf_counter() - begun) / 1e12


def _wait(where: torch.device) -> None:
    if where.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
