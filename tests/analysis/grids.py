"""Small grids on the bundled digits, and the bare loops that check them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import steep
from steep.analysis import ANALYSES, cells
from steep.bench.recipe import plan
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.data import load

SMALL = ("weights=untrained", "tea.sgld_steps=2", "tea.buffer_size=100", "tea.chains=10", "batch_size=30")


def grid(
    recipe: str, *only: str, sets: tuple[str, ...] = (), limit: int = 60, own_domain: bool = False
) -> tuple[Cell, ...]:
    return plan(recipe, sets=[*SMALL, *sets], only=list(only), limit=limit, own_domain=own_domain).cells


def stored(name: str, of: tuple[Cell, ...], folder: Path, **options: Any) -> list[dict[str, Any]]:
    analysis = ANALYSES[name]
    with Store(folder / "cells.jsonl") as store:
        done = cells.run(analysis, of, store, sources=Sources(), folder=folder, options=options)
        assert not done.failed, done.failed
        return [store[cell.key()] for cell in of]


def model() -> nn.Module:
    torch.manual_seed(0)
    return steep.models.build("wrn-10-1", 10, in_channels=1).eval()


def digits(shift: str, severity: int, limit: int = 60) -> tuple[Tensor, Tensor]:
    clean = shift == "clean"
    data = load("digits", limit=limit) if clean else load("digits-c", corruption=shift, severity=severity, limit=limit)
    return torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2) / 255.0, torch.from_numpy(data.labels.copy())


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
