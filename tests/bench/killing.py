"""Kill benches for real: run as a program, it prints one JSON object about what happened.

    python killing.py FOLDER KIND...        # of: one, two, share, ray

The grid is 40 tiny cells, for ray half of them. A child process is forked for every start, so that starting costs no
imports; it is ended with SIGKILL, which no handler sees.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch

from steep.bench import local
from steep.bench.recipe import plan
from steep.bench.rows import read, stable
from steep.bench.spec import Cell
from steep.bench.store import Store

torch.set_num_threads(1)

KILLS = 10


def cells(seeds: str = "0,1") -> list[Cell]:
    grid = plan(
        "digits",
        sets=["weights=untrained", "batch_size=20", "tea.sgld_steps=3", "tea.buffer_size=64"],
        only=["method=source,bn,tent,tea", "setting=paper", "shift=gaussian_noise,impulse_noise,fog,contrast,pixelate"],
        seeds=seeds,
        limit=60,
    )
    return list(grid.cells)


def start(folder: Path, *, count: bool = False) -> int:
    """Fork a bench; its exit code is 0, or the number of cells it ran itself."""
    child = os.fork()
    if child:
        return child
    try:
        with Store(folder) as store:
            done = local.run(cells(), store)
        os._exit(done.ran if count else 0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(99)


def ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def kill(child: int) -> bool:
    """Kill a child; False where it had ended by itself."""
    if ended(child):
        return False
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def by_kill(folder: Path, processes: int, seconds: float, seed: int) -> dict[str, object]:
    draw = random.Random(seed)
    killed, progress = 0, []
    while killed < KILLS:
        children = [start(folder) for _ in range(processes)]
        for child in children:
            time.sleep(draw.uniform(0.0, seconds / (8 * processes)))
            killed += kill(child)
        progress.append(len(read(folder)) if (folder / "rows.jsonl").exists() else 0)
    return {"killed": killed, "codes": finish(start(folder) for _ in range(processes)), "progress": progress}


def finish(children: Iterable[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in list(children)]


def by_ray(folder: Path) -> dict[str, object]:
    from steep.bench import ray

    lost: list[int] = []

    def watch(tick: object) -> None:
        if tick.done >= 5 and not lost:  # type: ignore[attr-defined]
            lost.extend(workers()[:1])
            for pid in lost:
                os.kill(pid, signal.SIGKILL)

    with Store(folder) as store:
        done = ray.run(cells("0"), store, address="local", progress=watch)
    return {"killed": len(lost), "failed": [reason for _, reason in done.failed], "ran": done.ran}


def workers() -> list[int]:
    """Find the Ray workers of this process that are at a cell (Ray's own helpers are called ray:: too)."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(entry.joinpath("stat").read_text().rpartition(")")[2].split()[1])
                names[int(entry.name)] = entry.joinpath("cmdline").read_text()
            except OSError:
                continue

    def mine(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in parents if names.get(pid, "").startswith("ray::_work") and mine(pid)]


def main() -> None:
    folder, kinds = Path(sys.argv[1]), sys.argv[2:]
    begun = time.monotonic()
    with Store(folder / "whole") as store:
        local.run(cells(), store)
    seconds = time.monotonic() - begun
    whole = {row["key"]: stable(row) for row in read(folder / "whole")}
    report = {}
    for kind in kinds:
        report[kind] = play(kind, folder / kind, seconds)
        cut = [stable(row) for row in read(folder / kind)]
        report[kind] |= {"cells": len(whole), "rows": len(cut), "equal": all(row == whole[row["key"]] for row in cut)}
        report[kind]["different"] = len({row["key"] for row in cut})
    print(json.dumps(report))


def play(kind: str, folder: Path, seconds: float) -> dict[str, object]:
    if kind == "ray":
        return by_ray(folder)
    if kind == "share":
        return {"ran": finish(start(folder, count=True) for _ in range(2))}
    return by_kill(folder, 1 if kind == "one" else 2, seconds, seed=7)


if __name__ == "__main__":
    main()
