"""Runs as they lie on disk: rows of a bench, rows of analyses, and where each file came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from steep.bench.rows import Row, file_of
from steep.bench.rows import read as read_rows
from steep.errors import InputError
from steep.files import file_sha256, open_regular
from steep.report.charts import read as read_flat
from steep.report.words import plain


@dataclass(frozen=True)
class Source:
    """One file of rows."""

    name: str  # what a reader calls it; never a whole path, since pages travel
    sha256: str
    rows: tuple[Row, ...]  # of steep bench
    analyses: tuple[Row, ...]  # of steep analyze: those with the key `analysis`
    file: Path | None = field(default=None, repr=False)  # for links from a page that lies beside it


@dataclass(frozen=True)
class Runs:
    """Everything a report is made of."""

    sources: tuple[Source, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """Rows of steep bench."""
        return [row for source in self.sources for row in source.rows]

    @property
    def analyses(self) -> list[Row]:
        """Flat rows of steep analyze."""
        return [row for source in self.sources for row in source.analyses]


def read(paths: Sequence[Path]) -> Runs:
    """Read runs: .jsonl files, or folders with rows.jsonl or any .jsonl and, of analyses, analysis/**/rows.jsonl.

    A file named twice counts once. Two runs of one name are told apart by the folders they lie in.
    """
    files: dict[Path, Path] = {}  # resolved → as named
    notes: list[str] = []
    left: list[str] = []  # rows of another kind
    for path in paths:
        for file in _files(path):
            if _kind(file) == "other":
                left.append(_name(file, 0))
                continue
            if file.resolve() in files:
                notes.append(f"{_name(file, 0)} was named more than once; it counts once")
            files.setdefault(file.resolve(), file)
    if left:
        notes.append(f"{', '.join(left)}: measurements that are not of cells; left out")
    names = _names(list(files))
    sources = [_source(name, file) for name, file in zip(names, files.values(), strict=True)]
    empty = [source.name for source in sources if not source.rows and not source.analyses]
    if len(empty) == len(sources):
        places = ", ".join(empty) or "no file"
        raise InputError(
            f"report: expected at least one row, got none in {places}. Run: steep bench RECIPE --store STORE"
        )
    notes += [f"{name} has no rows" for name in empty]
    return Runs(tuple(sources), tuple(map(plain, notes)))


def _files(path: Path) -> list[Path]:
    path = path.expanduser()
    rows = file_of(path)
    if path.suffix == ".jsonl":
        return [rows]
    analyses = sorted((path / "analysis").glob("**/rows.jsonl"))
    loose = [] if rows.exists() else sorted(path.glob("*.jsonl"))  # a folder of results rather than a run
    return [*([rows] if rows.exists() or not (analyses or loose) else []), *loose, *analyses]


def _source(name: str, path: Path) -> Source:
    flat = _kind(path) == "analysis"
    rows = [{**row, "run": name} for row in (read_flat(path) if flat else read_rows(path))]  # a claim names its files
    return Source(
        name=name,
        sha256=file_sha256(path),
        # what an analysis stores of its cells is made flat by it; those rows are no bench's
        rows=tuple(row for row in rows if "analysis" not in row),
        analyses=tuple(rows) if flat else (),
        file=path,
    )


def _kind(path: Path) -> str:
    """Tell by its first row what a file holds: cells of a bench, an analysis, or what a training or a script wrote."""
    try:
        with open_regular(path) as file:
            first = json.loads(file.readline())
    except (OSError, ValueError):
        return "bench"  # what is wrong is said where rows of cells are read
    names = set(first) if isinstance(first, dict) else set()
    known = names & {"key", "spec", "schema", "analysis", "version"}
    if names and (not known or names & {"benchmark", "history"}):
        return "other"
    return "analysis" if "analysis" in names and "spec" not in names else "bench"  # rows of cells have a spec


def _names(files: Sequence[Path]) -> list[str]:
    """Name files by their last folder or, where that is not enough to tell two apart, by more of them."""
    names = [_name(file, 0) for file in files]
    for depth in range(1, 12):
        twice = {name for name in names if names.count(name) > 1}
        names = [_name(file, depth) if name in twice else name for file, name in zip(files, names, strict=True)]
    return names


def _name(file: Path, depth: int) -> str:
    """Give a run's name: its folder, or its file where that has a name of its own."""
    named = file.parent if file.name == "rows.jsonl" else file.with_suffix("")
    parts = [part for part in named.parts if part != named.anchor]
    return plain("/".join(parts[-1 - depth :]) or file.stem)
