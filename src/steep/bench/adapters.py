"""Adapters for cells. Making one can be dear (compiled programs, CUDA graphs), so the last may be kept and reset.

An adapter that was reset replays from the source model and the first random number, so a cell's row does not depend on
whether its adapter is new.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.dist.group import Group
from steep.data import batches
from steep.errors import SteepWarning
from steep.methods import adapt

_ONCE = ("graph=True:", "compile=True:")  # how warnings begin that an adapter gives once, though they hold from then on


@dataclass
class Kept:
    """An adapter, what it was made for, and what all its rows have to say."""

    setup: Cell
    adapter: Adapter
    notes: list[str] = field(default_factory=list)
    peak: int = 0  # bytes: what a graph has recorded stays taken, but only the recording counts as taking it

    def noted(self, said: Sequence[str]) -> list[str]:
        """Give the notes of a cell that made the adapter warn: as many as a new adapter would have given."""
        self.notes += [note for note in dict.fromkeys(said) if note.startswith(_ONCE) and note not in self.notes]
        return list(dict.fromkeys([*self.notes, *said]))

    def highest(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Give the most memory held since the adapter was made."""
        self.peak = max(self.peak, memory["bytes"])
        return {**memory, "bytes": self.peak}


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
        notes = []
        source = None
        if cell.method == "eata":
            train = sources.train(cell)
            if train is None:
                notes = [f"no train split of {cell.data.removesuffix('-c')} here: eata has no Fisher term"]
            else:  # shuffled: sets on disk lie class by class
                source = batches(train, min(cell.batch_size or 200, len(train)), shuffle=0)
                notes = [f"Fisher images: {train.name} {train.split}, shuffled"]
        with told() as said:
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
        return Kept(setup(cell), adapter, [*notes, *said])

    def recorded(self, model: nn.Module) -> bool:
        """Whether steps are recorded as CUDA graphs: ranks that wait for each other inside a step cannot be."""
        return self.group is None and next(model.parameters()).is_cuda


@contextlib.contextmanager
def told() -> Iterator[list[str]]:
    """Collect what steep warns of inside, in a list that is full at the end; other warnings go on."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SteepWarning)
        yield said
    for warning in caught:
        if issubclass(warning.category, SteepWarning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def setup(cell: Cell) -> Cell:
    """Take from a cell what its adapter depends on: all but the stream."""
    return replace(cell, shift="", severity=0, sequence=(), protocol="", delta=None, limit=None)


def held(cell: Cell) -> str:
    """Name the precision the adapter holds frozen weights in; TF32 is the device's business."""
    return "float32" if cell.precision == "tf32" else cell.precision
