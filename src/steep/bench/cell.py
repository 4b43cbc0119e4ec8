"""Run one cell: the adapter over its stream, and the row that comes of it.

`energy_before` is the mean energy of the same images under the source model, unadapted; `energy_after` that of the
logits the adapter answered with. Their difference is the energy reduction of the paper's figures. The source model's
pass is made once for all cells on the same images (the source cell's own run counts) and is not part of `seconds`.

Logits stay on the device until the end: watching costs a wait at most twice a second, not watching none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from steep import provenance
from steep.bench.adapters import Adapters, held, told
from steep.bench.answers import packed
from steep.bench.measure import correct, diagrams, mean_energy, metrics
from steep.bench.rows import SCHEMA, Row
from steep.bench.sources import Recent, Sources
from steep.bench.spec import SEQUENCE, Cell
from steep.core.adapter import Adapter
from steep.core.dist.group import Group
from steep.core.run.precision import half_precision
from steep.data import Batches, ImageSet, Shift, stream, to_floats
from steep.errors import InputError
from steep.methods import adapt

Watch: TypeAlias = Callable[[int, int, float], None]
"""Called now and then with (images done, images in all, accuracy so far)."""

PRECISIONS = ("float32", "tf32", "bfloat16", "auto")

_RESIDENT = 4 << 30  # bytes of uint8 images that may live on the device at once
_WATCH_EVERY = 0.5  # seconds

_source_energies = Recent[float](1024)  # by source cell: the pass is made once for all methods and seeds


@dataclass(frozen=True, eq=False)
class Stretch:
    """A segment that was run: its answers and labels are still on the device."""

    name: str
    severity: int
    reset: bool
    logits: Tensor  # (N, K)
    labels: Tensor  # (N,)
    origin: Tensor | None = None  # (N,), which shift of a mixed stream an image came from


@dataclass(frozen=True, eq=False)
class Streamed:
    """What running a stream gave: the stretches in order and the seconds the adapter took."""

    stretches: list[Stretch]
    seconds: float
    undone: int  # steps the guard has undone


def run(
    cell: Cell,
    sources: Sources,
    device: torch.device | str = "cpu",
    watch: Watch | None = None,
    adapters: Adapters | None = None,
) -> Row:
    """Run a cell and return its row; in a group, on every rank, each with its part of every batch.

    `adapters` lends the adapter; without it a new one is made for this cell alone.

    >>> from steep.bench.sources import Disk
    >>> cell = Cell(
    ...     data="digits-c", shift="fog", severity=5, model="wrn-10-1", weights="untrained", method="bn", limit=60
    ... )
    >>> row = run(cell, Disk())
    >>> row["n"], 0 <= row["accuracy"] <= 1, row["spec"]["shift"]
    (60, True, 'fog')
    """
    device = torch.device(device)
    adapters = adapters or Adapters()
    group = adapters.group
    started = datetime.now(UTC)
    sets = [sources.images(cell, shift, severity) for shift, severity in cell.shifts]
    model = sources.model(cell, sets[0])
    with precision(cell.precision, device), told() as said:
        model = _placed(model, cell, device)
        with adapters.lend(cell, model, sources) as lent:
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            done = _stream(lent.adapter, cell, sets, device, watch, group)
            memory = lent.highest(provenance.peak_memory(device))
        logits = torch.cat([stretch.logits for stretch in done.stretches])
        labels = torch.cat([stretch.labels for stretch in done.stretches])
        after = mean_energy(logits)
        bare = _bare(cell)
        before = _source_energies.get(
            (bare, str(device), *(data.digest for data in sets)),
            lambda: after if cell.method == "source" else _source_energy(bare, model, sets, device, group),
        )
    found = metrics(logits, labels)
    return {
        "schema": SCHEMA,
        "key": cell.key(),
        "spec": cell.to_json(),
        **found,
        "energy_before": before,
        "energy_after": after,
        **diagrams(logits, labels),
        **_right(cell, correct(logits, labels)),
        "segments": _segments(cell, done.stretches),
        "data": [{"origin": data.origin, "sha256": data.digest, "images": len(data)} for data in sets],
        "notes": lent.noted(said),
        **({} if cell.guard == "off" else {"undone": done.undone}),
        "seconds": done.seconds,
        "images_per_s": found["n"] / done.seconds,
        "peak_memory": memory,
        "started": started.isoformat(timespec="milliseconds"),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "env": {
            **provenance.stamp(device),
            "precision": _used(cell, model, device),
            "graph": adapters.recorded(model),
            "compile": adapters.compile,
            "ranks": 1 if group is None else group.size,
        },
    }


@contextlib.contextmanager
def precision(kind: str, device: torch.device) -> Iterator[None]:
    """Choose how a GPU multiplies float32, for as long as the context lasts: exactly, or (all others) in TF32."""
    if kind not in PRECISIONS:
        raise InputError(f"precision: expected one of {', '.join(PRECISIONS)}, got {kind!r}")
    with contextlib.ExitStack() as stack:
        if device.type == "cuda":
            matmul, conv = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            stack.callback(_set_tf32, matmul, conv)
            _set_tf32(kind != "float32", kind != "float32")
        yield


def _set_tf32(matmul: bool, conv: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = conv


def _placed(model: nn.Module, cell: Cell, device: torch.device) -> nn.Module:
    """Put the model on the device; with tensor cores in play, in the layout they want."""
    tensor_cores = device.type == "cuda" and cell.precision != "float32"
    layout = torch.channels_last if tensor_cores else torch.contiguous_format
    placed: nn.Module = model.to(device).to(memory_format=layout)  # type: ignore[call-overload]
    return placed


def _used(cell: Cell, model: nn.Module, device: torch.device) -> str:
    """Name the precision that was used in the end: `auto` depends on the device, and TF32 is of GPUs alone."""
    half = half_precision(held(cell), next(model.parameters()))
    if half is not None:
        return str(half).removeprefix("torch.")
    return "tf32" if device.type == "cuda" and cell.precision != "float32" else "float32"


def _stream(
    adapter: Adapter,
    cell: Cell,
    sets: list[ImageSet],
    device: torch.device,
    watch: Watch | None = None,
    group: Group | None = None,
) -> Streamed:
    shifts = [Shift(name, level, data) for (name, level), data in zip(cell.shifts, sets, strict=True)]
    size = cell.batch_size or max(map(len, sets))
    segments = stream(
        cell.protocol, shifts, size, device=device, seed=cell.seed, delta=0.1 if cell.delta is None else cell.delta
    )
    stretches: list[Stretch] = []
    undone = 0
    view = _Watcher(watch, sum(map(len, sets)) * (2 if cell.protocol == "gradual" else 1))
    begun = _now(device)
    for index, segment in enumerate(segments):
        if segment.reset and index:
            undone += _undone(adapter, cell)  # a reset forgets the count
            adapter.reset()
        logits, labels = [], []
        for x, y in resident(segment.batches, group):
            answer = adapter(x)
            if group is not None:
                answer = group.gather(answer, group.parts(len(y)))
            logits.append(answer)
            labels.append(y)
            view.see(answer, y)
        answers, truth, origin = torch.cat(logits), torch.cat(labels), _origin(segment.batches)
        stretches.append(Stretch(segment.name, segment.severity, segment.reset, answers, truth, origin))
    seconds = max(_now(device) - begun, 1e-9)
    return Streamed(stretches, seconds, undone + _undone(adapter, cell))


def _undone(adapter: Adapter, cell: Cell) -> int:
    """Ask the guard what it has undone since the last reset, which waits for the device; without a guard, nothing."""
    report = adapter.last if cell.guard != "off" else None
    return 0 if report is None else report.undone


def _origin(mixed: Batches) -> Tensor | None:
    if len(mixed.sets) == 1:
        return None
    ends = np.cumsum([len(data) for data in mixed.sets])
    rows = np.arange(mixed.images) if mixed.order is None else mixed.order
    return torch.from_numpy(np.searchsorted(ends, rows, side="right")).to(mixed.device)


def resident(source: Batches, group: Group | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Give the batches of a stream from images that were moved to the device once, where they fit.

    In a group, images are this rank's part of a batch, labels those of all of it.

    >>> from steep.data import batches, load
    >>> plain = batches(load("digits", limit=50), 20, shuffle=1)
    >>> all(torch.equal(x, a) and torch.equal(y, b) for (x, y), (a, b) in zip(resident(plain), plain))
    True
    """
    if sum(data.images.nbytes for data in source.sets) > _RESIDENT:
        for x, y in source:
            yield (x if group is None else x[group.part(len(x))]), y
        return
    pixels = torch.cat([torch.from_numpy(np.array(data.images)).to(source.device) for data in source.sets])
    labels = torch.cat([torch.from_numpy(np.array(data.labels)).to(source.device) for data in source.sets])
    order = None if source.order is None else torch.from_numpy(source.order).to(source.device)
    for start in range(0, source.images, source.batch_size):
        stop = min(start + source.batch_size, source.images)
        whole = slice(start, stop)
        part = slice(0, stop - start) if group is None else group.part(stop - start)
        mine = slice(start + part.start, start + part.stop)
        x = to_floats(pixels[mine if order is None else order[mine]])
        yield x, labels[whole if order is None else order[whole]]


class _Watcher:
    """Counts right answers on the device and tells a person now and then."""

    def __init__(self, watch: Watch | None, total: int) -> None:
        self.watch, self.total = watch, total
        self.images, self.told = 0, time.monotonic()
        self.right: Tensor | None = None

    def see(self, logits: Tensor, labels: Tensor) -> None:
        if self.watch is None:
            return
        right = (logits.argmax(dim=1) == labels).sum()
        self.right = right if self.right is None else self.right + right
        self.images += len(labels)
        if time.monotonic() - self.told >= _WATCH_EVERY:
            self.watch(self.images, self.total, int(self.right) / self.images)
            self.told = time.monotonic()


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _bare(cell: Cell) -> Cell:
    """Take from a cell what the source model's answers depend on."""
    seed = cell.seed if cell.protocol in ("mixed", "label-shift") else 0
    return replace(
        cell,
        method="source",
        setting="paper",
        hyper=(),
        seed=seed,
        steps=1,
        episodic=False,
        predict="before",
        guard="off",
    )


def _source_energy(
    cell: Cell, model: nn.Module, sets: list[ImageSet], device: torch.device, group: Group | None
) -> float:
    """Mean energy of the images under the source model, in the same batches as the method saw them."""
    source = adapt(model, "source", precision=held(cell), guard="off", distributed=group or False)
    done = _stream(source, cell, sets, device, group=group)
    return mean_energy(torch.cat([stretch.logits for stretch in done.stretches]))


def _right(cell: Cell, right: Tensor) -> dict[str, str]:
    """Keep which images were right, where every method sees them in the same order and there are not very many."""
    return {"right": packed(right.cpu().numpy())} if cell.protocol == "reset" and cell.shift != SEQUENCE else {}


def _segments(cell: Cell, stretches: list[Stretch]) -> list[dict[str, Any]]:
    """Measure every segment by itself; a mixed stream is taken apart into the shifts its images came from."""
    if cell.protocol == "mixed":
        stretches = _apart(cell, stretches[0])
    elif cell.shift != SEQUENCE:
        return []
    wanted = ("n", "accuracy", "error", "loss", "ece", "mce", "brier")
    rows = []
    for stretch in stretches:
        found = metrics(stretch.logits, stretch.labels)
        after = mean_energy(stretch.logits)
        where = {"name": stretch.name, "severity": stretch.severity, "reset": stretch.reset}
        rows.append({**where, **{name: found[name] for name in wanted}, "energy_after": after})
    return rows


def _apart(cell: Cell, whole: Stretch) -> list[Stretch]:
    if whole.origin is None:  # one shift only: nothing to take apart
        return [replace(whole, name=cell.shifts[0][0])]
    return [
        Stretch(name, severity, False, whole.logits[whole.origin == index], whole.labels[whole.origin == index])
        for index, (name, severity) in enumerate(cell.shifts)
    ]
