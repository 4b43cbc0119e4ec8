"""Adapters for cells. Making one can be dear (compiled programs, CUDA graphs), so the last may be kept and reset.

An adapter that was reset replays from the source model and the first random number, so a cell's row does not depend on
whether its adapter is new.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.distributed import Group
from steep.data import batches
from steep.methods import adapt


@dataclass
class Kept:
    """An adapter, what it was made for, and what a reader of its rows should know."""

    setup: Cell
    adapter: Adapter
    notes: tuple[str, ...]


class Adapters:
    """Lends an adapter to one cell after the other. Cells that differ by their stream alone get the same one.

    Args:
        keep: whether the last is kept: it holds its memory on the device until another is asked for.
        compile: whether models are compiled, which pays after thousands of batches.
        group: the ranks that share every batch.
    """

    def __init__(self, *, keep: bool = False, compile: bool = False, group: Group | None = None) -> None:
        self.keep, self.compile, self.group = keep, compile, group
        self._kept: Kept | None = None

    @contextlib.contextmanager
    def lend(self, cell: Cell, model: nn.Module, sources: Sources) -> Iterator[Kept]:
        """Give the adapter of a cell, at its beginning. One whose cell fails is not lent again."""
        kept, self._kept = self._kept, None  # the memory of another is free before the next is made
        if kept is not None and kept.setup == setup(cell):
            kept.adapter.reset()
        else:
            kept = None
            kept = self._made(cell, model, sources)
        yield kept
        if self.keep:
            self._kept = kept

    def _made(self, cell: Cell, model: nn.Module, sources: Sources) -> Kept:
        hyper: dict[str, Any] = dict(cell.hyper)
        notes: tuple[str, ...] = ()
        source = None
        if cell.method == "eata":
            train = sources.train(cell)
            if train is None:
                notes = (f"no train split of {cell.data.removesuffix('-c')} here: eata has no Fisher term",)
            else:  # shuffled: sets on disk lie class by class
                source = batches(train, min(cell.batch_size or 200, len(train)), shuffle=0)
                notes = (f"Fisher images: {train.name} {train.split}, shuffled",)
        adapter = adapt(
            model,
            cell.method,
            setting=cell.setting,
            steps=cell.steps,
            episodic=cell.episodic,
            predict="after" if cell.predict == "after" else "before",
            seed=cell.seed,
            precision=held(cell),
            guard=cell.guard,
            compile=self.compile,
            graph=self.recorded(model),
            distributed=self.group or False,
            source=source,
            **hyper,
        )
        return Kept(setup(cell), adapter, notes)

    def recorded(self, model: nn.Module) -> bool:
        """Whether steps are recorded as CUDA graphs: ranks that wait for each other inside a step cannot be."""
        return self.group is None and next(model.parameters()).is_cuda


def setup(cell: Cell) -> Cell:
    """Take from a cell what its adapter depends on: all but the stream."""
    return replace(cell, shift="", severity=0, sequence=(), protocol="", delta=None, limit=None)


def held(cell: Cell) -> str:
    """Name the precision the adapter holds frozen weights in; TF32 is the device's business."""
    return "float32" if cell.precision == "tf32" else cell.precision
