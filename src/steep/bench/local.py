"""Run cells in this process, one after the other, and what all engines share: the board of cells that are left.

Several processes may share a store: each takes what is free.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from steep.bench import cell as one
from steep.bench import estimate
from steep.bench.adapters import Adapters, setup
from steep.bench.rows import Row, StoreError, grouped
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.bench.streaming import OnProgress
from steep.errors import CheckpointError, DataError, GroupError

# Errors that every further cell would meet too: the bench ends at once, with what is stored.
FATAL = (DataError, CheckpointError, GroupError, StoreError)
POLL_SECONDS = 0.5  # between looks at cells that another process is at


@dataclass(frozen=True, kw_only=True)
class Tick:
    """How far a bench is. `cell` is the one at work or just done, `accuracy` its own so far or in the end."""

    done: int
    total: int
    cell: Cell | None = None
    accuracy: float | None = None
    share: float = 0.0  # of the cell at work
    seconds_left: float | None = None


Progress: TypeAlias = Callable[[Tick], None]


@dataclass
class Outcome:
    """How a bench ended: cells run here, cells whose rows were stored before or by others, and failures."""

    ran: int = 0
    stored: int = 0
    failed: list[tuple[Cell, str]] = field(default_factory=list)


class Board:
    """Keeps count for an engine: cells left, cells it is at, time left, failures."""

    def __init__(self, cells: Sequence[Cell], store: Store, progress: Progress | None = None) -> None:
        self.cells = {cell.key(): cell for cell in cells}  # one of each, in order
        self.store, self.progress = store, progress
        store.begin(self.cells)
        self.left = {key: cell for key, cell in self.cells.items() if key not in store}
        self.claimed: set[str] = set()
        self.outcome = Outcome(stored=len(self.cells) - len(self.left))
        self._work = {key: estimate.work(cell) for key, cell in self.cells.items()}
        self._begun, self._worked = time.monotonic(), 0.0
        self.tell()

    def tell(self, cell: Cell | None = None, accuracy: float | None = None, share: float = 0.0) -> None:
        """Tell the watcher where things stand."""
        if self.progress is not None:
            total, left = len(self.cells), self._seconds_left(cell, share)
            done = total - len(self.left)
            self.progress(Tick(done=done, total=total, cell=cell, accuracy=accuracy, share=share, seconds_left=left))

    def reporter(self, cell: Cell) -> OnProgress:
        """Tell how far a cell is; never a whole share, as it is done when its row is stored."""
        return lambda done, total, accuracy: self.tell(cell, accuracy, min(done / max(1, total), 0.999))

    def claims(self) -> Iterator[tuple[str, Cell]]:
        """Claim one free cell after the other, as they are asked for; each is to be worked on in `attempt`."""
        for key, cell in list(self.left.items()):
            if key in self.left and key not in self.claimed and self.store.claim(key):
                self.claimed.add(key)
                self.drop_stored()  # its owner may have finished between our look and our claim
                if key in self.left:
                    yield key, cell
                else:
                    self.release(key)

    @contextlib.contextmanager
    def attempt(self, key: str) -> Iterator[None]:
        """Work on a claimed cell: an error fails it alone, without a row, so the next start tries it again."""
        try:
            yield
        except BaseException as error:
            self.release(key)
            if isinstance(error, FATAL) or not isinstance(error, Exception):
                raise
            cell = self.left.pop(key)
            self.outcome.failed.append((cell, f"{type(error).__name__}: {error}".strip().split("\n")[0]))
            self.tell(cell)

    def keep(self, key: str, row: Row) -> None:
        """Store the row of a claimed cell that has ended."""
        self.store.append(row)
        cell = self.left.pop(key)
        self._worked += self._work[key]
        self.outcome.ran += 1
        self.release(key)
        self.tell(cell, row["accuracy"], 1.0)

    def release(self, key: str) -> None:
        """Give a claimed cell back."""
        self.claimed.discard(key)
        self.store.release(key)

    def drop_stored(self) -> None:
        """Take note of rows other processes have written."""
        self.store.refresh()
        for key in [key for key in self.left if key in self.store]:
            del self.left[key]
            self.outcome.stored += 1

    def wait(self) -> None:
        """Let other processes go on: all that is left is with them."""
        self.tell()
        time.sleep(POLL_SECONDS)
        self.drop_stored()

    def _seconds_left(self, cell: Cell | None, share: float) -> float | None:
        key = cell.key() if cell is not None else ""
        share = share if key in self.left else 0.0
        at_work = share * self._work.get(key, 0.0)
        worked = self._worked + at_work
        # the first batches are slow, and a guess from them would be many times too long
        if worked <= 0 or self.outcome.ran + share < min(3, len(self.cells) / 10):
            return None
        left = sum(self._work[key] for key in self.left) - at_work
        return (time.monotonic() - self._begun) * left / worked


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    sources: Sources | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    compile: bool = False,
    run_cell: Callable[[Cell, Sources, torch.device | str, OnProgress | None], Row] | None = None,
) -> Outcome:
    """Run what is missing; every row is stored as its cell ends.

    A cell that another process is at is left to it and looked at again in the end: when its owner has died without a
    row, it is run here. Missing data and weights that do not fit end the bench; any other error fails its cell alone.

    On a GPU, or compiled, the cells of one method and seed follow each other and share an adapter, which is reset
    between them: what it has compiled is used again.
    """
    sources = sources or Sources()
    keep = compile or torch.device(device).type == "cuda"
    adapters = Adapters(keep=keep, compile=compile)
    run_cell = run_cell or (lambda cell, sources, device, report: one.run(cell, sources, device, report, adapters))
    if keep:
        cells = [cell for alike in grouped(cells, setup).values() for cell in alike]
    board = Board(cells, store, progress)
    while board.left:
        idle = True
        for key, cell in board.claims():
            idle = False
            board.tell(cell)
            with board.attempt(key):
                board.keep(key, run_cell(cell, sources, device, None if progress is None else board.reporter(cell)))
        if idle and board.left:
            board.wait()
    return board.outcome
