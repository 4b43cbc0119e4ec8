"""Run the cells of an analysis: what is missing, one after the other, each stored as it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from steep import provenance
from steep.analysis.spec import Analysis, Run, Tell
from steep.bench import local
from steep.bench.adapters import make_adapter, place, precision
from steep.bench.local import Outcome, Progress
from steep.bench.options import check
from steep.bench.rows import SCHEMA, Row
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.bench.streaming import OnProgress
from steep.errors import InputError


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
    if analysis.measure is None:
        return local.run(cells, store, sources=sources, device=device, progress=progress)
    options = resolve(analysis, options or {})
    for cell in cells:
        if cell.key() in store:
            _refuse_others(analysis, store[cell.key()], options, store.path)

    def run_cell(cell: Cell, sources: Sources, device: torch.device | str, on_progress: OnProgress | None) -> Row:
        def tell(share: float) -> None:
            if on_progress is not None:
                on_progress(round(1000 * share), 1000, None)

        return _measure(analysis, cell, sources, torch.device(device), folder, options, tell)

    return local.run(cells, store, sources=sources, device=device, progress=progress, run_cell=run_cell)


def resolve(analysis: Analysis, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options against those the analysis has, and fill in the others."""
    checked = check(f"options of {analysis.name}", options, {name: c for name, (_, c) in analysis.options.items()})
    return {name: default for name, (default, _) in analysis.options.items()} | checked


def _measure(
    analysis: Analysis,
    cell: Cell,
    sources: Sources,
    device: torch.device,
    folder: Path,
    options: Mapping[str, Any],
    tell: Tell,
) -> Row:
    """Measure one cell, in its precision, from the source model."""
    if analysis.measure is None:
        raise InputError(f"analysis: {analysis.name} measures no cells itself. Run it as a bench")
    if cell.protocol != "reset":
        raise InputError(f"protocol: expected 'reset', every shift from the source model, got {cell.protocol!r}")
    started = datetime.now(UTC)
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
