"""What the engines share: which cells are left, what a watcher is told, and which errors end a bench."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from steep.bench import estimate
from steep.bench.rows import Row, StoreError
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.errors import CheckpointError, DataError, GroupError, SteepError

FATAL = (DataError, CheckpointError, GroupError, StoreError)
"""Errors that every further cell would meet too: the bench ends at once, with what is stored."""

POLL_SECONDS = 0.5  # between looks at cells that another process is at


class EngineError(SteepError, RuntimeError):
    """An engine that cannot start or has lost its workers."""


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


def silent(tick: Tick) -> None:
    """Tell nobody."""


@dataclass
class Outcome:
    """How a bench ended: cells run here, cells whose rows were stored before or by others, and failures."""

    ran: int = 0
    stored: int = 0
    failed: list[tuple[Cell, str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Cells of the grid."""
        return self.ran + self.stored + len(self.failed)


class Board:
    """Keeps count for the engines: cells left, time left, failures."""

    def __init__(self, cells: Sequence[Cell], store: Store, progress: Progress) -> None:
        self.cells = {cell.key(): cell for cell in cells}  # one of each, in order
        self.store, self.progress = store, progress
        store.begin(self.cells)
        self.left = {key: cell for key, cell in self.cells.items() if key not in store}
        self.outcome = Outcome(stored=len(self.cells) - len(self.left))
        self._work = {key: estimate.work(cell) for key, cell in self.cells.items()}
        self._begun, self._worked = time.monotonic(), 0.0
        self.tell()

    def tell(self, cell: Cell | None = None, accuracy: float | None = None, share: float = 0.0) -> None:
        """Tell the watcher where things stand."""
        self.progress(
            Tick(
                done=len(self.cells) - len(self.left),
                total=len(self.cells),
                cell=cell,
                accuracy=accuracy,
                share=share,
                seconds_left=self._seconds_left(cell, share),
            )
        )

    def drop_stored(self) -> None:
        """Take note of rows other processes have written."""
        self.store.refresh()
        for key in [key for key in self.left if key in self.store]:
            del self.left[key]
            self.outcome.stored += 1

    def keep(self, key: str, row: Row) -> None:
        """Store the row of a cell that has ended."""
        self.store.append(row)
        cell = self.left.pop(key)
        self._worked += self._work[key]
        self.outcome.ran += 1
        self.tell(cell, row["accuracy"], 1.0)

    def fail(self, key: str, error: BaseException) -> None:
        """Note a cell that cannot be run; it has no row, so the next start tries it again."""
        cell = self.left.pop(key)
        self.outcome.failed.append((cell, f"{type(error).__name__}: {error}".strip().split("\n")[0]))
        self.tell(cell)

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
