"""Run cells in this process, one after the other. Several processes may share a store: each takes what is free."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from steep.bench import cell as one
from steep.bench.adapters import Adapters, setup
from steep.bench.engine import FATAL, POLL_SECONDS, Board, Outcome, Progress, silent
from steep.bench.rows import Row
from steep.bench.sources import Disk, Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.bench.streaming import OnProgress


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    sources: Sources | None = None,
    device: torch.device | str = "cpu",
    progress: Progress = silent,
    compile: bool = False,
    run_cell: Callable[[Cell, Sources, torch.device | str, OnProgress | None], Row] | None = None,
) -> Outcome:
    """Run what is missing; every row is stored as its cell ends.

    A cell that another process is at is left to it and looked at again in the end: when its owner has died without a
    row, it is run here. Missing data and weights that do not fit end the bench; any other error fails its cell alone.

    On a GPU, or compiled, the cells of one method and seed follow each other and share an adapter, which is reset
    between them: what it has compiled is used again.

    >>> import tempfile
    >>> cell = Cell(data="digits", shift="clean", model="wrn-10-1", weights="untrained", method="source", limit=20)
    >>> with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
    ...     run([cell], store).ran, run([cell], store).stored
    (1, 1)
    """
    sources = sources or Disk()
    keep = compile or torch.device(device).type == "cuda"
    adapters = Adapters(keep=keep, compile=compile)
    run_cell = run_cell or (lambda cell, sources, device, report: one.run(cell, sources, device, report, adapters))
    if keep:
        firsts = {setup(cell): index for index, cell in reversed(list(enumerate(cells)))}
        cells = sorted(cells, key=lambda cell: firsts[setup(cell)])
    board = Board(cells, store, progress)
    while board.left:
        idle = True
        for key, cell in list(board.left.items()):
            if key not in board.left or not store.claim(key):
                continue
            try:
                board.drop_stored()  # its owner may have finished between our look and our claim
                if key not in board.left:
                    continue
                idle = False
                board.tell(cell)
                board.keep(key, run_cell(cell, sources, device, _on_progress(board, cell)))
            except FATAL:
                raise
            except Exception as error:
                board.fail(key, error)
            finally:
                store.release(key)
        board.drop_stored()
        if idle and board.left:
            board.tell()
            time.sleep(POLL_SECONDS)
    return board.outcome


def _on_progress(board: Board, cell: Cell) -> OnProgress | None:
    if board.progress is silent:
        return None
    # Never a whole share: a cell is done when its row is stored.
    return lambda done, total, accuracy: board.tell(cell, accuracy, min(done / max(1, total), 0.999))
