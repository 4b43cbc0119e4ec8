"""Run cells on all ranks that torchrun has started: one stream, each rank with its part of every batch.

    torchrun --nproc_per_node=8 -m steep bench RECIPE

Rank 0 holds the store, chooses the next cell and tells a person; the others follow. Rows are those of one process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from steep.bench import cell as one
from steep.bench import local
from steep.bench.adapters import Adapters
from steep.bench.local import FATAL, Outcome, Progress
from steep.bench.rows import Row
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.bench.streaming import OnProgress
from steep.core.dist.group import Group
from steep.errors import SteepError

PATIENCE = 1800.0  # seconds: a rank may have to load or make images first; torchrun itself ends the ranks of a dead one
_END = -1


def started() -> bool:
    """Whether torchrun has started this process, and others with it."""
    return dist.is_available() and dist.is_torchelastic_launched() and int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextlib.contextmanager
def joined(device: str) -> Iterator[tuple[Group, str]]:
    """Join the other ranks; give the group and this rank's own device."""
    if device == "cuda":
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    yield Group(timeout=PATIENCE), device
    dist.destroy_process_group()  # after an error it could wait for ever: the process ends anyway


def lead(
    cells: Sequence[Cell], store: Store, group: Group, *, sources: Sources, device: str, progress: Progress | None
) -> Outcome:
    """On rank 0: run what is missing, all ranks together."""
    places = {cell.key(): index for index, cell in enumerate(cells)}
    adapters = Adapters(group=group)

    def together(cell: Cell, sources: Sources, device: torch.device | str, on_progress: OnProgress | None) -> Row:
        group.exchange([places[cell.key()]])
        with group.in_step():
            return one.run(cell, sources, device, on_progress, adapters)

    try:
        done = local.run(cells, store, sources=sources, device=device, progress=progress, run_cell=together)
        group.exchange([_END])
    except BaseException:
        group.leave()
        raise
    return done


def follow(cells: Sequence[Cell], group: Group, *, sources: Sources, device: str) -> None:
    """On every other rank: run the cells that rank 0 names, until it names none."""
    adapters = Adapters(group=group)
    while (index := group.exchange([_END])[0][0]) != _END:
        try:
            with group.in_step():
                one.run(cells[index], sources, device, None, adapters)
        except FATAL:
            group.leave()
            raise
        except SteepError:
            continue  # every rank meets it; rank 0 notes that the cell has failed
