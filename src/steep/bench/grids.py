"""What a store was asked for and has not got yet, so that a report does not take a part of a bench for the whole.

Beside `rows.jsonl` lies `rows.jsonl.grids`, as long as a grid lacks rows: the keys of the cells of each such grid.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from steep import files
from steep.errors import DataError

GRID = "grid"
"""Where a row, once read, holds how much of its grid there is, if not all: cells here, cells in all. No file has it."""

Grid: TypeAlias = list[str]  # keys of cells, sorted


def of(store: Path) -> Path:
    """Name the file of the grids of a file of rows.

    >>> of(Path("runs/digits/rows.jsonl")).name
    'rows.jsonl.grids'
    """
    return store.with_name(store.name + ".grids")


def read(store: Path) -> list[Grid]:
    """Read the grids that were begun; one of them may have got its last row since."""
    path = of(store)
    if not path.exists():
        return []
    grids = files.read_json(path)
    if not isinstance(grids, list) or not all(
        isinstance(g, list) and all(isinstance(k, str) for k in g) for g in grids
    ):
        raise DataError(f"{path}: expected lists of keys of cells, got something else. Delete it")
    return grids


def remember(store: Path, grids: Sequence[Grid], rows: Container[str]) -> None:
    """Write those grids that lack rows; where none does, leave no file."""
    path = of(store)
    if lacking := [grid for grid in grids if not all(key in rows for key in grid)]:
        files.write_json(path, lacking)
    else:
        path.unlink(missing_ok=True)


def shares(grids: Sequence[Grid], rows: Container[str]) -> dict[str, tuple[int, int]]:
    """Say of each row whose grid is not whole how many cells of it are here, and how many there are to be.

    A row of several such grids counts to the largest.

    >>> shares([["a", "b", "c"], ["d"]], rows={"a", "b", "d"})
    {'a': (2, 3), 'b': (2, 3)}
    """
    counts = {}
    for grid in sorted(grids, key=len):
        here = [key for key in grid if key in rows]
        if len(here) < len(grid):
            counts.update(dict.fromkeys(here, (len(here), len(grid))))
    return counts


def begun(rows: Iterable[Mapping[str, Any]]) -> str:
    """Say how many cells there are of each bench that some rows are of and that is not whole.

    >>> begun([{"key": "a", "grid": (15, 102)}, {"key": "b", "grid": (15, 102)}, {"key": "c"}]), begun([{"key": "c"}])
    ('15 of 102 cells', '')
    """
    shares = dict.fromkeys(tuple(row[GRID]) for row in rows if GRID in row)
    return " and ".join(f"{here:,} of {every:,} cells" for here, every in shares)
