"""Adapters for cells, made in this one place, and how a device computes for them.

Making one can take long (compiled programs, CUDA graphs), so the last may be kept and reset: it replays from the
source model and the first random number, so a cell's row does not depend on whether its adapter is new.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.dist.group import Group
from steep.core.method import Need
from steep.data import batches
from steep.errors import FallbackWarning, InputError, SteepWarning
from steep.methods import METHODS, adapt

PRECISIONS = ("float32", "tf32", "bfloat16", "auto")


@contextlib.contextmanager
def precision(kind: str, device: torch.device) -> Iterator[None]:
    """Choose how a GPU multiplies float32, for as long as the context lasts: exactly, or (all others) in TF32."""
    if kind not in PRECISIONS:
        raise InputError(f"precision: expected one of {', '.join(PRECISIONS)}, got {kind!r}")
    units: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn) if device.type == "cuda" else ()
    before = [unit.allow_tf32 for unit in units]
    try:
        for unit in units:
            unit.allow_tf32 = kind != "float32"
        yield
    finally:
        for unit, allowed in zip(units, before, strict=True):
            unit.allow_tf32 = allowed


def place(model: nn.Module, cell: Cell, device: torch.device) -> nn.Module:
    """Put the model on the device; with tensor cores in play, in the layout they want."""
    tensor_cores = device.type == "cuda" and cell.precision != "float32"
    layout = torch.channels_last if tensor_cores else torch.contiguous_format
    placed: nn.Module = model.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    return placed


def now(device: torch.device) -> float:
    """Read the clock once the device has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def make_adapter(cell: Cell, model: nn.Module, sources: Sources, **options: Any) -> tuple[Adapter, list[str]]:
    """Make the adapter of a cell; with it come notes for the cell's row.

    The model is where it is to run. `options` are those of `steep.adapt`, and come before what the cell says.
    """
    notes = []
    if Need.SOURCE_IMAGES in METHODS[cell.method].needs:
        train = sources.train(cell)
        if train is None:
            notes.append(f"no train split of {cell.data.removesuffix('-c')} here: {cell.method} has no source images")
        else:  # shuffled: sets on disk lie class by class
            options["source"] = batches(train, min(cell.batch_size or 200, len(train)), shuffle=0)
            notes.append(f"source images: {train.name} {train.split}, shuffled")
    names = ("setting", "steps", "episodic", "predict", "seed", "guard", "views")
    options = {**{name: getattr(cell, name) for name in names}, "precision": cell.weight_dtype, **options}
    hyper: dict[str, Any] = dict(cell.hyper)
    with collect_warnings() as caught:
        adapter = adapt(model, cell.method, **options, **hyper)
    return adapter, [*notes, *map(str, caught)]


@dataclass
class SharedAdapter:
    """An adapter, what it was made for, and what the rows of all its cells say."""

    setup: Cell
    adapter: Adapter
    notes: list[str]
    fallbacks: list[str] = field(default_factory=list)  # warned of once, though they hold from then on
    peak: int = 0  # bytes: what a graph has recorded stays taken, but only the recording counts as taking it

    def add_notes(self, caught: Iterable[SteepWarning]) -> list[str]:
        """Take the warnings of one cell; give the notes of its row, as many as a new adapter would have given."""
        self.fallbacks += [str(warning) for warning in caught if isinstance(warning, FallbackWarning)]
        return list(dict.fromkeys([*self.notes, *self.fallbacks, *map(str, caught)]))

    def add_memory(self, memory: dict[str, Any]) -> dict[str, Any]:
        """Take the memory of one cell; give the most that was taken since the adapter was made."""
        self.peak = max(self.peak, memory["bytes"])
        return {**memory, "bytes": self.peak}


class Adapters:
    """Lends an adapter to one cell after the other. Cells that differ by their stream alone get the same one.

    With `keep` the last one is kept, and its memory on the device is taken until another is asked for. To compile pays
    after thousands of batches. The ranks of a `group` share every batch.
    """

    def __init__(self, *, keep: bool = False, compile: bool = False, group: Group | None = None) -> None:
        self.keep, self.compile, self.group = keep, compile, group
        self._last: SharedAdapter | None = None

    @contextlib.contextmanager
    def lend(self, cell: Cell, model: nn.Module, sources: Sources) -> Iterator[SharedAdapter]:
        """Give the adapter of a cell, at its beginning. One whose cell fails is not lent again."""
        shared, self._last = self._last, None
        if shared is not None and shared.setup == setup(cell):
            shared.adapter.reset()
        else:
            shared = None  # its memory is free before the next is made
            how = {"compile": self.compile, "graph": self.records(model), "distributed": self.group or False}
            shared = SharedAdapter(setup(cell), *make_adapter(cell, model, sources, **how))
        yield shared
        if self.keep:
            self._last = shared

    def records(self, model: nn.Module) -> bool:
        """Whether steps are recorded as CUDA graphs: ranks that wait for each other inside a step cannot be."""
        return self.group is None and next(model.parameters()).is_cuda


@contextlib.contextmanager
def collect_warnings() -> Iterator[list[SteepWarning]]:
    """Collect steep's warnings in a list that is full at the end of the context; other warnings go on."""
    collected: list[SteepWarning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SteepWarning)
        yield collected
    for warning in caught:
        if isinstance(warning.message, SteepWarning):
            collected.append(warning.message)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def setup(cell: Cell) -> Cell:
    """Take from a cell what its adapter depends on: all but the stream."""
    return replace(cell, shift="", severity=0, sequence=(), protocol="", delta=None, rounds=None, pace=None, limit=None)
