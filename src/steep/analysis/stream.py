"""A live record of one run: a line for each batch, written while the adapter works.

    with Recorder("run.jsonl") as record:
        adapter = steep.adapt(model, "tea", callbacks=[record])
        for x in stream:
            logits = adapter(x)

`steep analyze stream run.jsonl` draws it, and `--follow` shows it as it grows. The file holds a line that says what is
run, then a line for each batch.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from steep import provenance
from steep.analysis.cells import VERSION
from steep.bench.rows import Row, encode
from steep.comparing import Estimate, RunningGain
from steep.core.adapter import Adapter
from steep.core.losses import energy, entropy
from steep.core.run.attempt import REASONS
from steep.core.run.watched import WAITING
from steep.errors import DataError, InputError
from steep.files import explained, make_folder, read_bytes

NUMBERS = ("energy_before", "energy_after", "energy_samples", "loss", "entropy", "used", "undone", "disagreement")
GAIN = ("gain", "gain_low", "gain_high")  # over the source model, of late, estimated in points


class Recorder:
    """A callback that appends a line for each batch, without making the device wait for it.

    What a batch did is kept as one small tensor on the device. Every `every` batches, or `seconds` after the last time,
    all of them are read at once and written. Close it, or leave its `with`, to write the rest. A batch that `compare`
    was called for does wait.

    >>> import tempfile, steep
    >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with Recorder(path) as record:
    ...     adapter = steep.adapt(steep.models.build("wrn-10-1", 10), "tent", callbacks=[record])
    ...     _ = adapter(torch.rand(64, 3, 32, 32))
    >>> row, = read(path)
    >>> row["method"], row["batch"], row["n"], sum(row["classes"])
    ('tent', 1, 64, 64)
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 50, seconds: float = 2.0) -> None:
        if every < 1:
            raise InputError(f"every: expected 1 batch or more, got {every}")
        self.path, self.every, self.seconds = Path(path), every, seconds
        self.batches = 0
        self._pending: list[tuple[dict[str, Any], Tensor]] = []
        self._source: Tensor | None = None
        self._gain = RunningGain()
        self._begun = self._flushed = time.monotonic()
        with explained(self.path):
            make_folder(self.path.parent)
            self.path.touch()  # a place that cannot be written to is said now

    def reference(self, logits: Tensor) -> None:
        """Take the source model's logits of the next batch, to set them beside the adapted model's."""
        self._source = logits.detach()

    def compare(self, source: Callable[[Tensor], Tensor], x: Tensor, view: str = "mirror") -> None:
        """Let the source model answer the batch that comes next: as `reference`, and it estimates what adapting gains.

        That costs two forward passes of the source model and one of the adapted one. `view` as in `steep.compare`.
        """
        self.reference(self._gain.ask(source, x, view))

    @torch.no_grad()
    def __call__(self, adapter: Adapter, logits: Tensor) -> None:
        """Note what the last batch did."""
        now = time.monotonic()
        if self.batches == 0:
            self._begun = self._flushed = now
            self._write(encode(self._start(adapter)))
        self.batches += 1
        about = {"batch": self.batches, "n": len(logits), "seconds": round(now - self._begun, 3), **_note(adapter)}
        about |= dict.fromkeys(GAIN)
        if self._gain.take(adapter, logits) and (gain := self._gain.read()) is not None:
            about |= dict(zip(GAIN, gain, strict=True))
        self._pending.append((about, _numbers(adapter, logits, self._source)))
        self._source = None
        if len(self._pending) >= self.every or now - self._flushed >= self.seconds:
            self.flush()

    def flush(self) -> None:
        """Read what is kept from the device, which waits for it, and write it."""
        self._flushed = time.monotonic()
        if self._pending:
            pending, self._pending = self._pending, []
            numbers = torch.stack([numbers for _, numbers in pending]).tolist()
            lines = [_line(about, values) for (about, _), values in zip(pending, numbers, strict=True)]
            self._write(b"".join(map(encode, lines)))

    def close(self) -> None:
        """Write the rest."""
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, content: bytes) -> None:
        with explained(self.path), self.path.open("ab") as file:  # held open, it would be lost to whoever moves it
            file.write(content)

    def _start(self, adapter: Adapter) -> Row:
        return {
            "analysis": "stream",
            "version": VERSION,
            "part": "start",
            "method": adapter.method.name,
            "label": adapter.method.name,
            "hyper": asdict(adapter.method),
            **adapter.options(),
            "model": type(adapter.model).__name__,
            "commit": provenance.commit(),
            "device": provenance.device_name(adapter.device),
            "steep": provenance.versions()["steep"],
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def _numbers(adapter: Adapter, logits: Tensor, source: Tensor | None = None) -> Tensor:
    """What the batch did as one vector on the device: NUMBERS, a flag for each of REASONS, two class histograms.

    `adapter.last` would say the same and wait for the device; so the tensors it would read are kept instead.
    """
    raw = adapter.raw
    first, final = raw.steps[0], raw.steps[-1]
    good = logits.isfinite().all(dim=1)  # damaged images are answered with NaN
    nothing = logits.new_full((), math.nan)
    used = final.used if isinstance(final.used, Tensor) else None
    count = len(first.logits) if final.used is None else final.used
    answers = logits.nan_to_num().argmax(dim=1)
    others = answers if source is None else source.to(answers.device).argmax(dim=1)
    numbers = [
        energy(first.logits).nanmean(),
        torch.where(good, energy(logits), nothing).nanmean(),
        nothing if final.energy_samples is None else final.energy_samples,
        nothing if final.loss is None else final.loss,
        torch.where(good, entropy(logits), nothing).nanmean(),
        logits.new_full((), float(count)) if used is None else used,
        raw.undone.to(logits.device, non_blocking=True),  # of a method that never steps it is still on the host
        nothing if source is None else torch.where(good, (answers != others).to(logits.dtype), nothing).nanmean(),
    ]
    faults = logits.new_zeros(len(REASONS)) if raw.verdict is None else raw.verdict
    # not bincount: on a GPU it waits to learn how many classes there are
    counts = [logits.new_zeros(logits.shape[1]).index_add_(0, k, good.to(logits.dtype)) for k in (answers, others)]
    return torch.cat([torch.stack([n.double() for n in numbers]), faults.double(), *(each.double() for each in counts)])


def _note(adapter: Adapter) -> dict[str, str | bool | None]:
    """What the host knows without asking the device."""
    raw = adapter.raw
    final = raw.steps[-1]
    sure = final.moved and not isinstance(final.leap, Tensor)  # a leap on the device may not have happened
    after = adapter.predict == "after" or not final.moved
    return {
        "skipped": None if final.moved else final.note,
        "unused": final.reason_if_unused,
        "after": after,
        "note": final.note if sure else None,
        "waiting": final.note == WAITING,  # small batches are gathered: nothing that a chart has to mark
    }


def _line(about: dict[str, Any], values: Sequence[float]) -> Row:
    numbers = dict(zip(NUMBERS, values, strict=False))
    faults, classes = values[len(NUMBERS) : len(NUMBERS) + len(REASONS)], values[len(NUMBERS) + len(REASONS) :]
    known = numbers["disagreement"] == numbers["disagreement"]
    reasons = ", ".join(reason for fault, reason in zip(faults, REASONS, strict=True) if fault)
    if not numbers["used"]:  # a mean over no image
        numbers["loss"] = math.nan
    used = 0 if reasons else int(numbers["used"])
    if used and not about["after"]:  # the answer is the one from before the update
        numbers["energy_after"] = math.nan
    return {
        "part": "batch",
        **{name: value for name, value in about.items() if name not in ("unused", "after")},
        **{name: None if value != value else value for name, value in numbers.items()},
        "undone": int(numbers["undone"]),
        "used": used,
        "skipped": reasons or about["skipped"] or (None if used else about["unused"]),
        "classes": [int(count) for count in classes[: len(classes) // 2]],
        "source_classes": [int(count) for count in classes[len(classes) // 2 :]] if known else None,
    }


def estimate(rows: Sequence[Row]) -> Estimate | None:
    """Give the last gain over the source model that a record holds."""
    known = (row for row in reversed(rows) if row.get("gain") is not None)
    return next((Estimate(*(row[name] for name in GAIN)) for row in known), None)


def read(path: str | os.PathLike[str]) -> list[Row]:
    """Read the last run of a file as flat rows, one for each batch. A line that is still being written is left out."""
    file = Path(path)
    try:
        content = read_bytes(file)
    except OSError as error:
        raise DataError(
            f"{file}: expected a file that steep.analysis.stream.Recorder wrote ({error.strerror})"
        ) from error
    start: Row | None = None
    rows: list[Row] = []
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        where = f"{file}: line {number}"
        try:
            row = json.loads(line)
            part = row["part"]
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{where} is not one of a Recorder ({error}). Move it out of the file") from error
        if part == "start":
            if row.get("version", 0) > VERSION:
                raise DataError(f"{where} was written by a newer steep. Upgrade steep")
            start, rows = {k: v for k, v in row.items() if k not in ("hyper", "part")}, []
        elif start is None:
            raise DataError(f"{where}: expected a run to start with its own line. Bring back its first line")
        else:
            rows.append({**start, **row})
    return rows
