"""What an analysis is, and what every row of one says about itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch

from steep.bench.rows import Row
from steep.bench.spec import Cell
from steep.core.adapter import Adapter
from steep.core.constraints import Constraint
from steep.data import Batches, ImageSet, batches

VERSION = 1
"""Of the flat rows; raised when an older reader could no longer understand them."""

Tell: TypeAlias = Callable[[float], None]
"""Called with the share of a cell that is done."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell that is measured: its adapter at the source model, its images, and where pictures go."""

    adapter: Adapter
    cell: Cell
    images: ImageSet
    device: torch.device
    folder: Path
    options: Mapping[str, Any]
    tell: Tell

    def stream(self) -> Batches:
        """Batch the images as the cell says."""
        return batches(self.images, self.cell.batch_size or len(self.images), device=self.device)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """One analysis: how a cell is measured, and how what is stored becomes flat rows."""

    name: str
    about: str
    recipe: str  # taken where the caller names none
    rows: Callable[[Sequence[Row]], list[Row]]  # stored → flat
    summary: Callable[[Sequence[Row]], list[str]]  # flat → lines for a person
    measure: Callable[[Run], dict[str, Any]] | None = None  # run → stored; None: the row of a bench says everything
    options: Mapping[str, tuple[Any, Constraint]] = field(default_factory=dict)  # name → default and allowed values
    step_by_step: bool = False  # whether each call of the adapter answers before its update and makes one step
    own_domain: bool = False  # whether a model is also run on the domain it was trained on


def flat(analysis: str, row: Row, **values: Any) -> Row:
    """Make a flat row: what was run and where, from the stored row of its cell, and the values.

    >>> stored = {"spec": {"method": "tea", "shift": "fog"}, "finished": "2024-06-17", "env": {"commit": "c0ffee"}}
    >>> made = flat("calibration", stored, ece=0.25)
    >>> made["analysis"], made["shift"], made["label"], made["commit"], made["ece"]
    ('calibration', 'fog', 'tea', 'c0ffee', 0.25)
    """
    spec, env = row["spec"], row.get("env", {})
    tuned = " (tuned)" if spec.get("setting") == "tuned" else ""
    names = ("data", "source", "shift", "severity", "model", "weights", "weights_sha256", "method", "setting", "seed")
    more = ("protocol", "batch_size", "steps", "predict", "limit", "size", "precision")
    return {
        "analysis": analysis,
        "version": VERSION,
        **{name: spec.get(name) for name in (*names, *more)},
        "label": (spec.get("label") or spec.get("method") or "") + tuned,
        "commit": env.get("commit"),
        "device": env.get("device"),
        "steep": env.get("versions", {}).get("steep"),
        "when": row.get("finished"),
        **values,
    }


def lines(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Part flat rows into lines: one method of one model on one data set. Names say the latter where there are several.

    >>> [name for name, _ in lines([{"label": "tea", "data": "mnist"}, {"label": "tea", "data": "cifar10"}])]
    ['tea on mnist', 'tea on cifar10']
    """
    parted: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        parted.setdefault((row["label"], *(row.get(name) for name in _TOGETHER)), []).append(row)
    if len({key[1:] for key in parted}) < 2:
        return [(key[0], line) for key, line in parted.items()]
    return [(f"{key[0]} on {', '.join(str(word) for word in key[1:4] if word)}", line) for key, line in parted.items()]


_TOGETHER = ("data", "source", "model", "weights", "weights_sha256", "limit", "size")


def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Name the images and the model a row is of: rows that differ only in the method have the same place."""
    names = ("data", "source", "shift", "severity", "model", "weights", "weights_sha256", "protocol", "limit", "size")
    return tuple(row.get(name) for name in names)
