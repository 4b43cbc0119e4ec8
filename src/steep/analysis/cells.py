"""What an analysis is, what every row of one says about itself, and how its cells are run.

What is missing is run, one cell after the other, each stored as it ends.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from steep import provenance
from steep.bench import local
from steep.bench.adapters import make_adapter, place, precision
from steep.bench.local import Outcome, Progress
from steep.bench.options import check
from steep.bench.rows import SCHEMA, Row, grouped
from steep.bench.sources import Sources
from steep.bench.spec import Cell, label_of
from steep.bench.store import Store
from steep.bench.streaming import OnProgress
from steep.core.adapter import Adapter
from steep.core.constraints import Constraint
from steep.data import Batches, ImageSet, batches
from steep.errors import InputError

VERSION = 1
"""Of the flat rows; raised when an older reader could no longer understand them."""

MODEL = ("model", "weights", "weights_sha256")
"""What of a row names its model."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell that is measured: its adapter at the source model, its images, and where pictures go."""

    adapter: Adapter
    cell: Cell
    images: ImageSet
    device: torch.device
    folder: Path
    options: Mapping[str, Any]
    tell: Callable[[float], None]  # called with the share of the cell that is done

    def stream(self) -> Batches:
        """Batch the images as the cell says."""
        return batches(self.images, self.cell.batch_size or len(self.images), device=self.device)


class Analysis(abc.ABC):
    """One analysis of rows that a bench stores: how they become flat rows, and what they say to a person."""

    name: str
    recipe: str  # taken where the caller names none
    options: ClassVar[Mapping[str, tuple[Any, Constraint]]] = {}  # name → default and allowed values
    own_domain = False  # whether a model is also run on the domain it was trained on

    @abc.abstractmethod
    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """Make flat rows of what is stored."""

    @abc.abstractmethod
    def summary(self, rows: Sequence[Row]) -> list[str]:
        """Say in a few lines what the flat rows show."""

    def draw(self, rows: Sequence[Row], folder: Path) -> list[Path]:
        """Write pictures of the flat rows, besides the figures that every analysis has."""
        return []

    def flat(self, row: Row, **values: Any) -> Row:
        """Make a flat row: what was run and where, from the stored row of its cell, and the values."""
        spec, env = row["spec"], row.get("env", {})
        names = ("data", "source", "shift", "severity", *MODEL, "method", "setting", "seed", "protocol", "batch_size")
        return {
            "analysis": self.name,
            "version": VERSION,
            **{name: spec.get(name) for name in (*names, "steps", "predict", "limit", "size", "precision")},
            "label": label_of(spec),
            "commit": env.get("commit"),
            "device": env.get("device"),
            "steep": env.get("versions", {}).get("steep"),
            "when": row.get("finished"),
            **values,
        }


class MeasuringAnalysis(Analysis):
    """An analysis that needs more of a cell than a bench stores."""

    step_by_step = False  # whether each call of the adapter answers before its update and makes one step

    @abc.abstractmethod
    def measure(self, run: Run) -> dict[str, Any]:
        """Measure one cell; what comes of it is stored."""


def lines(rows: Sequence[Row], part: str | None = None) -> list[tuple[str, list[Row]]]:
    """Group flat rows (of one part) by line: a method of one model on one data set, named where there are several.

    >>> [name for name, _ in lines([{"label": "tea", "data": "mnist"}, {"label": "tea", "data": "cifar10"}])]
    ['tea on mnist', 'tea on cifar10']
    """
    names = ("data", "source", *MODEL, "limit", "size")
    rows = [row for row in rows if part in (None, row.get("part"))]
    groups = grouped(rows, lambda row: (row["label"], *(row.get(name) for name in names)))
    several = len({key[1:] for key in groups}) > 1
    where = {key: f" on {', '.join(str(word) for word in key[1:4] if word)}" if several else "" for key in groups}
    return [(key[0] + where[key], line) for key, line in groups.items()]


def images_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Name the images and the model a row is of: the same for rows that differ only in the method."""
    names = ("data", "source", "shift", "severity", *MODEL, "protocol", "limit", "size")
    return tuple(row.get(name) for name in names)


def run(
    analysis: Analysis,
    cells: Sequence[Cell],
    store: Store,
    *,
    sources: Sources,
    folder: Path,
    device: torch.device | str = "cpu",
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run what is missing. An analysis of bench rows runs as a bench; others measure more, cell by cell."""
    run_cell = None
    if isinstance(analysis, MeasuringAnalysis):
        options = resolve(analysis, options or {})
        run_cell = partial(_measure, analysis, folder=folder, options=options)
        for cell in cells:
            if cell.key() in store:
                _refuse_others(analysis, store[cell.key()], options, store.path)
    return local.run(cells, store, sources=sources, device=device, progress=progress, run_cell=run_cell)


def resolve(analysis: Analysis, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options against those the analysis has, and fill in the others."""
    checked = check(f"options of {analysis.name}", options, {name: c for name, (_, c) in analysis.options.items()})
    return {name: default for name, (default, _) in analysis.options.items()} | checked


def _measure(
    analysis: MeasuringAnalysis,
    cell: Cell,
    sources: Sources,
    device: torch.device | str,
    on_progress: OnProgress | None,
    *,
    folder: Path,
    options: Mapping[str, Any],
) -> Row:
    """Measure one cell, in its precision, from the source model."""
    if cell.protocol != "reset":
        raise InputError(f"protocol: expected 'reset', every shift from the source model, got {cell.protocol!r}")

    def tell(share: float) -> None:
        if on_progress is not None:
            on_progress(round(1000 * share), 1000, None)

    started, device = datetime.now(UTC), torch.device(device)
    images = sources.images(cell, cell.shift, cell.severity)
    with precision(cell.precision, device):
        model = place(sources.model(cell, images), cell, device)
        # Where each call answers before its update, the analysis counts the steps, one call for each.
        how: dict[str, Any] = {"predict": "before", "steps": 1} if analysis.step_by_step else {}
        adapter, notes = make_adapter(cell, model, sources, **how)
        measured = analysis.measure(
            Run(adapter=adapter, cell=cell, images=images, device=device, folder=folder, options=options, tell=tell)
        )
    return {
        "schema": SCHEMA,
        "key": cell.key(),
        "spec": cell.to_json(),
        "analysis": analysis.name,
        "options": dict(options),
        **measured,
        "notes": notes,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "env": provenance.stamp(device),
    }


def _refuse_others(analysis: Analysis, row: Row, options: Mapping[str, Any], path: Path) -> None:
    if row.get("analysis") != analysis.name:
        other = row.get("analysis", "a bench")
        raise InputError(f"{path}: expected rows of {analysis.name}, got rows of {other}. Choose another --out")
    if row.get("options") != dict(options):
        raise InputError(
            f"{path}: holds cells measured with {row.get('options')}, now asked for {dict(options)}. "
            "Choose another --out, or delete that file"
        )
