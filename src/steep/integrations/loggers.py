"""Loggers for `steep.adapt(..., callbacks=[...])`: one line or one point for each batch, of what `adapter.last` says.

>>> import json, tempfile, torch, steep
>>> path = Path(tempfile.mkdtemp()) / "stream.jsonl"
>>> adapter = steep.adapt(steep.models.build("wrn-10-1", 10), "tent", callbacks=[JsonLines(path)])
>>> for _ in range(3):
...     logits = adapter(torch.rand(64, 3, 32, 32))
>>> [(row["batch"], row["images"], row["used"]) for row in map(json.loads, path.read_text().splitlines())]
[(1, 64, 64), (2, 128, 64), (3, 192, 64)]
"""

from __future__ import annotations

import abc
import json
import math
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from steep.core.adapter import Adapter
from steep.errors import InputError, optional
from steep.files import explained, make_folder


class _Logger(abc.ABC):
    """Counts batches and images; every so many batches it writes. Only then is `adapter.last` read, which waits."""

    def __init__(self, every: int) -> None:
        if every < 1:
            raise InputError(f"every: expected 1 or more batches, got {every}")
        self.every = every
        self.batches = 0
        self.images = 0

    def __call__(self, adapter: Adapter, logits: Tensor) -> None:
        """Take note of a batch."""
        self.batches += 1
        self.images += len(logits)
        if self.batches % self.every == 0 and (report := adapter.last) is not None:
            self.write(asdict(report))

    @abc.abstractmethod
    def write(self, report: dict[str, Any]) -> None:
        """Write one report."""


class JsonLines(_Logger):
    """Append a JSON object a line to a file: batch, images so far, time (UTC), and all of `adapter.last`.

    Numbers that are not finite become null. A line is written whole, and is there when the batch is answered.

    Args:
        path: the file; what is in it stays.
        every: write each so many batches.
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int = 1) -> None:
        super().__init__(every)
        self.path = Path(path)
        with explained(self.path):
            make_folder(self.path.parent)

    def write(self, report: dict[str, Any]) -> None:
        """Append a line."""
        append_line(self.path, {"batch": self.batches, "images": self.images, **report})


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append a JSON object with the time (UTC) to a file; numbers that are not finite become null."""
    known = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
    with explained(path), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **known}) + "\n")


class TensorBoard(_Logger):
    """Draw `adapter.last` as curves over the number of images, in TensorBoard under steep/.

    Args:
        folder: where TensorBoard looks for its files.
        every: draw each so many batches.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int = 1) -> None:
        super().__init__(every)
        self.folder = os.fspath(folder)
        self._writer = self._open()

    def _open(self) -> Any:
        return optional("torch.utils.tensorboard", "tensorboard").SummaryWriter(self.folder)

    def write(self, report: dict[str, Any]) -> None:
        """Add a point to each curve, and what was skipped or noted as text."""
        for name, value in report.items():
            if isinstance(value, str):
                self._writer.add_text(f"steep/{name}", value, self.images)
            elif value is not None:
                self._writer.add_scalar(f"steep/{name}", value, self.images)
        self._writer.flush()

    def close(self) -> None:
        """Close its files."""
        self._writer.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_writer": None}  # its threads cannot be copied: a copied adapter opens its own

    def __setstate__(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
        self._writer = self._open()
