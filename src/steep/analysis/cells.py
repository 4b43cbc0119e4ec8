"""Run the cells of an analysis: what is missing, one after the other, each stored as it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steep import provenance
from steep.analysis.spec import Analysis, Tell
from steep.bench import local
from steep.bench.cell import precision
from steep.bench.engine import FATAL, Board, Outcome, Progress, silent
from steep.bench.options import check, choices
from steep.bench.rows import SCHEMA, Row
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.core.adapter import Adapter
from steep.core.method import Moment
from steep.data import Batches, ImageSet, batches
from steep.errors import InputError
from steep.methods import adapt


def run(
    analysis: Analysis,
    cells: Sequence[Cell],
    store: Store,
    *,
    sources: Sources,
    folder: Path,
    device: torch.device | str = "cpu",
    options: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Outcome:
    """Run what is missing. An analysis of bench rows runs as a bench; others measure more, cell by cell."""
    if analysis.measure is None:
        return local.run(cells, store, sources=sources, device=device, progress=progress)
    options = resolved(analysis, options or {})
    board = Board(cells, store, progress)
    for key in board.cells:
        if key in store:
            _refuse_others(analysis, store[key], options, store.path)
    for key, cell in list(board.left.items()):
        if not store.claim(key):
            continue  # another process is at it
        board.tell(cell)
        try:
            row = _measured(analysis, cell, sources, torch.device(device), folder, options, _teller(board, cell))
        except FATAL:
            raise
        except Exception as error:
            board.fail(key, error)
        else:
            board.keep(key, row)
        finally:
            store.release(key)
    return board.outcome


def resolved(analysis: Analysis, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check options against those the analysis has, and fill in the others."""
    check(f"options of {analysis.name}", given, {name: kinds for name, (_, kinds) in analysis.options.items()})
    return {name: given.get(name, default) for name, (default, _) in analysis.options.items()}


def chosen(rows: Sequence[Row], only: Sequence[str]) -> list[Row]:
    """Keep the stored rows that `--only` asks for.

    >>> chosen([{"spec": {"shift": "fog"}}, {"spec": {"shift": "snow"}}], ["shift=fog"])
    [{'spec': {'shift': 'fog'}}]
    """
    asked = choices(only)
    kept = []
    for row in rows:
        spec = row["spec"]
        names = {what: {str(spec.get(what))} for what in asked}
        if "method" in names and spec.get("label"):
            names["method"].add(spec["label"])
        if all(names[what] & values for what, values in asked.items()):
            kept.append(row)
    return kept


@contextmanager
def ready(
    cell: Cell, sources: Sources, device: torch.device, *, predict: Moment | None = None
) -> Iterator[tuple[Adapter, ImageSet]]:
    """Give the adapter and the images of a cell, in the cell's precision, each shift from the source model again."""
    if cell.protocol != "reset":
        raise InputError(f"protocol: expected 'reset', every shift from the source model, got {cell.protocol!r}")
    images = sources.images(cell, cell.shift, cell.severity)
    model: nn.Module = sources.model(cell, images).to(device)
    before: Moment = "after" if cell.predict == "after" else "before"
    held = "float32" if cell.precision == "tf32" else cell.precision
    # Who chooses when to predict also counts the steps, one call for each.
    hyper: dict[str, Any] = dict(cell.hyper) | ({"steps": cell.steps} if predict is None else {})
    with precision(cell.precision, device):
        yield (
            adapt(
                model,
                cell.method,
                setting=cell.setting,
                episodic=cell.episodic,
                predict=predict or before,
                seed=cell.seed,
                precision=held,
                guard=cell.guard,
                **hyper,
            ),
            images,
        )


def stream(cell: Cell, images: ImageSet, device: torch.device) -> Batches:
    """Batch the images as the cell says."""
    return batches(images, cell.batch_size or len(images), device=device)


def answers(adapter: Adapter, cell: Cell, images: ImageSet, device: torch.device, tell: Tell) -> tuple[Tensor, Tensor]:
    """Adapt over the whole set; its logits (N, K) and labels (N,), on the CPU."""
    logits, labels = [], []
    source = stream(cell, images, device)
    for index, (x, y) in enumerate(source, 1):
        logits.append(adapter(x))
        labels.append(y)
        tell(index / len(source))
    return torch.cat(logits).cpu(), torch.cat(labels).cpu()


def _measured(
    analysis: Analysis,
    cell: Cell,
    sources: Sources,
    device: torch.device,
    folder: Path,
    options: Mapping[str, Any],
    tell: Tell,
) -> Row:
    if analysis.measure is None:
        raise InputError(f"analysis: {analysis.name} measures no cells of its own. Run it as a bench")
    started = datetime.now(UTC)
    found = analysis.measure(cell, sources, device, folder=folder, options=options, tell=tell)
    return {
        "schema": SCHEMA,
        "key": cell.key(),
        "spec": cell.to_json(),
        "analysis": analysis.name,
        "options": dict(options),
        **found,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "env": provenance.stamp(device),
    }


def _teller(board: Board, cell: Cell) -> Tell:
    # Never a whole share: a cell is done when its row is stored.
    return lambda share: board.tell(cell, None, min(share, 0.999))


def _refuse_others(analysis: Analysis, row: Row, options: Mapping[str, Any], path: Path) -> None:
    if row.get("analysis") != analysis.name:
        held = row.get("analysis", "a bench")
        raise InputError(f"{path}: expected rows of {analysis.name}, got rows of {held}. Choose another --out")
    if row.get("options") != dict(options):
        raise InputError(
            f"{path}: holds cells measured with {row.get('options')}, now asked for {dict(options)}. "
            "Choose another --out, or delete that file"
        )
