"""Fixtures: tiny sets under the real names, and corruptions a test can compute in its head."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_sets import Tiny, as_known, stubbed, tiny_set

from steep import corruptions
from steep.data import corrupted, known


@pytest.fixture
def cifar10(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    tiny = tiny_set((32, 32, 3), 10, 1)
    monkeypatch.setitem(known.KNOWN, "cifar10", as_known(tiny, known.CIFAR10))
    return tiny


@pytest.fixture
def cifar100(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    tiny = tiny_set((32, 32, 3), 100, 2)
    monkeypatch.setitem(known.KNOWN, "cifar100", as_known(tiny, known.CIFAR100))
    return tiny


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> Tiny:
    tiny = tiny_set((28, 28, 1), 10, 3)
    monkeypatch.setitem(known.KNOWN, "mnist", as_known(tiny, known.MNIST))
    return tiny


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Replace the corruptions by a formula a test can do in its head; return the calls made."""
    calls: list[tuple[str, int, int]] = []

    def fake(
        images: np.ndarray, name: str, severity: int = 5, seed: int = 0, *, first: int = 0, table: str | None = None
    ) -> np.ndarray:
        calls.append((name, severity, first))
        return stubbed(images, name, severity, seed, first)

    monkeypatch.setattr(corruptions, "corrupt", fake)
    monkeypatch.setattr(corruptions, "frost_source", lambda: "procedural")
    return calls


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrupted, "_CHUNK", 5 * 8 * 8 * 3)  # 5 pictures: 12 are not a multiple
