"""What lies in results/: rows of benches and analyses, of trainings, and of the benchmark that keeps TEA's buffer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steep.bench.rows import Row
from steep.errors import InputError
from steep.files import file_sha256
from steep.report import runs
from steep.report.runs import Runs
from steep.report.words import plain

_BUFFER = frozenset({"data", "model", "method", "order", "kept", "mean", "n"})
_TRAINING = frozenset(
    {"architecture", "data", "image_shape", "epochs", "seed", "accuracy", "test_images", "device", "history"}
)


@dataclass(frozen=True)
class Evidence:
    """Everything the results pages are made of."""

    runs: Runs
    trainings: tuple[Row, ...] = ()
    buffers: tuple[Row, ...] = ()
    others: tuple[tuple[str, int, str, Path], ...] = ()  # name, rows, sha256 and file of those that hold the latter


def read(paths: Sequence[Path]) -> Evidence:
    """Read folders or files of rows."""
    files = [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    trainings: list[Row] = []
    buffers: list[Row] = []
    others = []
    cells = []
    for file in files:
        first = _first(file)
        needed = _BUFFER if first.get("benchmark") == "kept-buffer" else _TRAINING if "history" in first else None
        if needed is None:
            cells.append(file)
            continue
        rows = [{**row, "run": file.stem} for row in _whole(file, needed)]
        (buffers if needed is _BUFFER else trainings).extend(rows)
        others.append((plain(file.stem), len(rows), file_sha256(file), file))
    return Evidence(runs.read(cells) if cells else Runs(()), tuple(trainings), tuple(buffers), tuple(others))


def _first(path: Path) -> Row:
    try:
        with path.open("rb") as file:
            row = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    return row if isinstance(row, dict) else {}


def _whole(path: Path, needed: frozenset[str]) -> list[Row]:
    """Read rows; one that is damaged or of another kind is named."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        lacking = sorted(needed - row.keys()) if isinstance(row, dict) else ["a JSON object"]
        if lacking:
            raise InputError(f"{path}: line {number} lacks {', '.join(lacking)}. Move that line out of the file")
        rows.append(row)
    return rows
