"""The benchmark of kept chains keeps them where it says so, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.kept_buffer import accuracies
from steep.data import load


class Chains:
    """A buffer that holds the number of batches its chains have seen."""

    def __init__(self) -> None:
        self.age = 0

    def snapshot(self) -> int:
        return self.age

    def restore(self, age: int) -> None:
        self.age = age


class State(SimpleNamespace):
    """What a method remembers; here its chains and how many steps its optimiser has taken."""

    def __init__(self) -> None:
        super().__init__(buffer=Chains(), optimizer=0)

    def snapshot(self) -> dict[str, int]:
        return {"buffer": self.buffer.snapshot(), "optimizer": self.optimizer}

    def restore(self, saved: dict[str, int]) -> None:
        self.buffer.restore(saved["buffer"])
        self.optimizer = saved["optimizer"]


class Fake:
    """An adapter that notes how old model, chains and optimiser are when a batch comes, and is always right."""

    device = torch.device("cpu")

    def __init__(self, labels: Tensor) -> None:
        self._state = State()
        self.model, self.labels, self.at = 0, labels, 0
        self.met: list[tuple[int, int, int]] = []

    def reset(self) -> None:
        self.model = self._state.buffer.age = self._state.optimizer = 0
        self.at = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.met.append((self.model, self._state.buffer.age, self._state.optimizer))
        self.model += 1
        self._state.buffer.age += 1
        self._state.optimizer += 1
        right = self.labels[self.at : self.at + len(x)]
        self.at += len(x)
        return torch.nn.functional.one_hot(right, 10).float()


def test_the_model_is_reset_before_each_set_and_the_rest_only_where_asked() -> None:
    data = load("digits", limit=20)
    sets: dict[str, Any] = {"a": data, "b": data, "c": data}
    anew, on = [0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5]
    for kept, chains, steps in (((), anew, anew), (("buffer",), on, anew), (("buffer", "optimizer"), on, on)):
        fake = Fake(torch.from_numpy(data.labels.copy()))
        fake._state.buffer.age = 7  # of what ran before: never kept
        assert accuracies(fake, sets, 10, kept) == {"a": 1.0, "b": 1.0, "c": 1.0}  # type: ignore[arg-type]
        assert list(zip(*fake.met, strict=True)) == [tuple(anew), tuple(chains), tuple(steps)]
