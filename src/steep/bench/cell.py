"""Run one cell: the adapter over its stream, and the row that comes of it.

`energy_before` is the mean energy of the same images under the source model, unadapted; `energy_after` that of the
logits the adapter answered with. Their difference is the energy reduction of the paper's figures. The source model's
pass is made once for all cells on the same images (the source cell's own run counts) and is not part of `seconds`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from steep import provenance
from steep.bench.adapters import Adapters, collect_warnings, place, precision
from steep.bench.measure import correct, diagrams, mean_energy, metrics
from steep.bench.rows import SCHEMA, Row, packed
from steep.bench.sources import Recent, Sources
from steep.bench.spec import SEQUENCE, Cell
from steep.bench.streaming import Answers, OnProgress, run_stream
from steep.core.dist.group import Group
from steep.core.run.precision import half_precision
from steep.data import ImageSet
from steep.data.streamed import streamed
from steep.data.streams import knobs
from steep.methods import SOURCE, adapt, is_baseline

MOST_NAMED = 100  # pictures that could not be read, in one row

_source_energies = Recent[float](1024)  # by source cell: the pass is made once for all methods and seeds


def run(
    cell: Cell,
    sources: Sources,
    device: torch.device | str = "cpu",
    on_progress: OnProgress | None = None,
    adapters: Adapters | None = None,
) -> Row:
    """Run a cell and return its row; in a group, on every rank, each with its part of every batch.

    `adapters` lends the adapter; without it a new one is made for this cell alone.
    """
    device = torch.device(device)
    adapters = adapters or Adapters()
    group = adapters.group
    started = datetime.now(UTC)
    sets = [sources.images(cell, shift, severity) for shift, severity in cell.shifts]
    model = sources.model(cell, sets[0])
    with precision(cell.precision, device), collect_warnings() as caught:
        model = place(model, cell, device)
        with adapters.lend(cell, model, sources) as shared:
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            done = run_stream(shared.adapter, cell, sets, device, on_progress, group)
            memory = shared.add_memory(provenance.peak_memory(device))
        logits = torch.cat([segment.logits for segment in done.segments])
        labels = torch.cat([segment.labels for segment in done.segments])
        after = mean_energy(logits)
        source = _source_cell(cell)
        before = _source_energies.get(
            (source, str(device), *(data.digest for data in sets)),
            lambda: after if is_baseline(cell.method) else _source_energy(source, model, sets, device, group),
        )
    measured = metrics(logits, labels)
    right = {} if cell.rounds else {"right": packed(_by_place(correct(logits, labels), done.segments))}
    missed = {} if cell.pace is None else {"missed": done.missed}
    return {
        "schema": SCHEMA,
        "key": cell.key(),
        "spec": cell.to_json(),
        **measured,
        "energy_before": before,
        "energy_after": after,
        **diagrams(logits, labels),
        **right,
        **missed,
        "online": cell.batch_size != 0,
        "segments": _segments(cell, done.segments),
        "data": [_about(data) for data in sets],
        "notes": shared.add_notes(caught),
        **({} if cell.guard == "off" else {"undone": done.undone}),
        "seconds": done.seconds,
        "images_per_s": measured["n"] / done.seconds,
        "peak_memory": memory,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "env": {
            **provenance.stamp(device),
            "precision": _precision_used(cell, model),
            "graph": adapters.records(model),
            "compile": adapters.compile,
            "ranks": 1 if group is None else group.size,
        },
    }


def _about(data: ImageSet) -> dict[str, Any]:
    """Say in a row which pictures these were, which could not be read, and which classes of the model counted."""
    images = len(data) - (len(data.left_out) if streamed(data.images) else 0)
    about: dict[str, Any] = {"origin": data.origin, "sha256": data.digest, "images": images}
    if data.left_out:
        about |= {"left_out": len(data.left_out), "unreadable": dict(sorted(data.left_out.items())[:MOST_NAMED])}
    if data.subset is not None:
        about |= {"classes": list(data.classes), "of_classes": data.subset.of}
    return about


def _source_cell(cell: Cell) -> Cell:
    """Take from a cell what the source model's answers depend on."""
    seed = cell.seed if "seed" in knobs(cell.protocol) else 0
    how: dict[str, Any] = {"setting": "paper", "hyper": (), "steps": 1, "episodic": False, "predict": "before"}
    return replace(cell, method=SOURCE, seed=seed, guard="off", views=None, **how)


def _source_energy(
    cell: Cell, model: nn.Module, sets: list[ImageSet], device: torch.device, group: Group | None
) -> float:
    """Mean energy of the images under the source model, in the same batches as the method saw them."""
    source = adapt(model, SOURCE, precision=cell.weight_dtype, guard="off", distributed=group or False)
    done = run_stream(source, cell, sets, device, group=group)
    return mean_energy(torch.cat([segment.logits for segment in done.segments]))


def _precision_used(cell: Cell, model: nn.Module) -> str:
    """Name the precision that was used in the end: `auto` depends on the device, and TF32 is of GPUs alone."""
    weight = next(model.parameters())
    half = half_precision(cell.weight_dtype, weight)
    if half is not None:
        return str(half).removeprefix("torch.")
    return "tf32" if weight.is_cuda and cell.precision != "float32" else "float32"


def _segments(cell: Cell, segments: list[Answers]) -> list[dict[str, Any]]:
    """Measure every segment by itself; a mixed stream is taken apart into the shifts its images came from."""
    if cell.shift != SEQUENCE:
        return []
    rows = []
    if len(segments) == 1:
        segments = _apart(cell, segments[0])
    for segment in segments:
        about = {"name": segment.name, "severity": segment.severity, "reset": segment.reset}
        measured = metrics(segment.logits, segment.labels)
        numbers = {name: measured[name] for name in ("n", "accuracy", "error", "loss", "ece", "mce", "brier")}
        rows.append({**about, **numbers, "energy_after": mean_energy(segment.logits)})
    return rows


def _by_place(right: Tensor, segments: list[Answers]) -> NDArray[np.bool_]:
    """Put flags in the order of the sets' images, so that they are of the same ones whatever order a stream has."""
    flags = np.split(right.cpu().numpy(), np.cumsum([len(segment.places) for segment in segments])[:-1])
    return np.concatenate([flag[np.argsort(segment.places)] for flag, segment in zip(flags, segments, strict=True)])


def _apart(cell: Cell, whole: Answers) -> list[Answers]:
    if whole.origin is None:  # one shift only: nothing to take apart
        return [replace(whole, name=cell.shifts[0][0])]
    return [
        replace(whole, name=name, severity=severity, reset=False, logits=whole.logits[of], labels=whole.labels[of])
        for index, (name, severity) in enumerate(cell.shifts)
        for of in [whole.origin == index]
    ]
