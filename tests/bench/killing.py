"""Kill benches for real: run as a program, it prints one JSON object about what happened.

    python killing.py one|two|share|ray FOLDER

The grid is 40 tiny cells. A child process is forked for every start, so that starting costs no imports; it is ended
with SIGKILL, which no handler sees.
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


def cells() -> list[Cell]:
    grid = plan(
        "digits",
        sets=["weights=untrained", "batch_size=20", "tea.sgld_steps=3", "tea.buffer_size=64"],
        only=["method=source,bn,tent,tea", "setting=paper", "shift=gaussian_noise,impulse_noise,fog,contrast,pixelate"],
        seeds="0,1",
        limit=60,
    )
    assert len(grid.cells) == 40
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
        done = ray.run(cells(), store, address="local", progress=watch)
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
    kind, folder = sys.argv[1], Path(sys.argv[2])
    begun = time.monotonic()
    with Store(folder / "whole") as store:
        local.run(cells(), store)
    seconds = time.monotonic() - begun
    if kind == "ray":
        told = by_ray(folder / "cut")
    elif kind == "share":
        told = {"ran": finish(start(folder / "cut", count=True) for _ in range(2))}
    else:
        told = by_kill(folder / "cut", 1 if kind == "one" else 2, seconds, seed=7)
    whole = {row["key"]: stable(row) for row in read(folder / "whole")}
    cut = [stable(row) for row in read(folder / "cut")]
    told |= {"cells": len(whole), "rows": len(cut), "equal": {row["key"]: row for row in cut} == whole}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
