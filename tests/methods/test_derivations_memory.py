"""The memory of images by class and age, against the paper's rules written out with lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import steep
from nets import images, net
from steep.core.memory import ClassMemory
from steep.errors import CheckpointError, InputError


class HandMemory:
    """Yuan et al. 2023, algorithm 1: a list of (name, uncertainty, age) for each class."""

    def __init__(self, size: int, classes: int) -> None:
        self.size, self.lists = size, [[] for _ in range(classes)]

    def score(self, uncertainty: float, age: int) -> float:
        return 1 / (1 + math.exp(-age / self.size)) + uncertainty / math.log(len(self.lists))

    def make_room(self, classes: list[int], score: float) -> bool:
        """Drop the worst of some classes, the last of equals, if it is worse than the new one."""
        best = None
        for k in classes:
            for i, (_, uncertainty, age) in enumerate(self.lists[k]):
                if best is None or self.score(uncertainty, age) >= best[0]:
                    best = self.score(uncertainty, age), k, i
        if best[0] > score:
            self.lists[best[1]].pop(best[2])
            return True
        return False

    def add(self, name: float, label: int, uncertainty: float) -> None:
        counts = [len(each) for each in self.lists]
        if counts[label] >= self.size / len(self.lists):
            room = self.make_room([label], self.score(uncertainty, 0))
        elif sum(counts) < self.size:
            room = True
        else:
            most = [k for k, n in enumerate(counts) if n == max(counts)]
            room = self.make_room(most, self.score(uncertainty, 0))
        if room:
            self.lists[label].append((name, uncertainty, 0))
        self.lists = [[(name, u, age + 1) for name, u, age in each] for each in self.lists]

    def content(self) -> tuple[list[float], list[float]]:
        every = [item for each in self.lists for item in each]
        return [name for name, _, _ in every], [age / self.size for _, _, age in every]


@pytest.mark.parametrize(("size", "classes"), [(10, 7), (12, 3), (6, 40), (1, 5), (8, 2)])
def test_what_stays_is_what_the_rules_keep(size, classes):
    """A stream whose classes come in runs, in pieces of any length; each image is its number."""
    rng = np.random.default_rng(size)
    memory, hand = ClassMemory(size), HandMemory(size, classes)
    number, replaced, left_out = 0, 0, 0
    for _ in range(60):
        n = int(rng.integers(1, 9))
        favourite = rng.integers(classes)
        logits = torch.tensor(rng.normal(size=(n, classes)) * rng.uniform(0.5, 3))
        logits[: n // 2, favourite] += 4
        names = torch.arange(number, number + n, dtype=torch.float64)
        number += n
        before = {*hand.content()[0]}
        p = logits.softmax(dim=1)
        for name, row in zip(names.tolist(), p.tolist(), strict=True):
            hand.add(name, int(np.argmax(row)), -sum(q * math.log(q) for q in row))
        memory.add(names.view(-1, 1, 1, 1).expand(n, 3, 2, 2), logits)
        images, ages = memory.content()
        expected = hand.content()
        assert images[:, 0, 0, 0].tolist() == expected[0]
        assert ages.tolist() == expected[1]
        replaced += len(before - {*expected[0]})
        left_out += len({*names.tolist()} - {*expected[0]})
    assert len(memory.items) == size
    assert replaced > 10
    assert left_out > 10


def test_a_step_is_undone_from_the_journal():
    memory = ClassMemory(4)
    memory.add(torch.rand(6, 3, 2, 2), torch.rand(6, 5))
    before, items, known = memory.snapshot(), memory.items, memory.images
    memory.journal = []
    memory.add(torch.rand(30, 3, 2, 2), 9 * torch.rand(30, 5))
    assert not torch.equal(memory.images, before["images"])
    for tensor, index, values in reversed(memory.journal):
        tensor[index] = values
    assert torch.equal(memory.images, before["images"])
    assert memory.images is known
    assert items == tuple(type(items[0])(*row) for row in before["items"])


def test_images_of_another_size_are_refused():
    adapter = steep.adapt(net(), "rotta")
    adapter(images())
    before = adapter.state_dict()["state"]["memory"]
    with pytest.raises(InputError, match=r"expected \(3, 8, 8\).*reset\(\)"):
        adapter(images(size=12))
    assert torch.equal(adapter.state_dict()["state"]["memory"]["images"], before["images"])
    adapter.reset()
    adapter(images(size=12))


def damaged() -> dict[str, dict]:
    good = {"images": torch.zeros(4, 3, 8, 8), "items": [[0, 1, 0.5, 2], [3, 1, 0.5, 1]]}
    return {
        "no mapping": [1],  # type: ignore[dict-item]
        "no images": {**good, "images": None},
        "fewer images": {**good, "images": torch.zeros(3, 3, 8, 8)},
        "flat images": {**good, "images": torch.zeros(4)},
        "whole numbers": {**good, "images": torch.zeros(4, 3, 8, 8, dtype=torch.int64)},
        "no list": {**good, "items": 3},
        "short item": {**good, "items": [[0, 1, 0.5]]},
        "place taken": {**good, "items": [[0, 1, 0.5, 2], [0, 1, 0.5, 1]]},
        "place outside": {**good, "items": [[4, 1, 0.5, 2]]},
        "no number": {**good, "items": [[0, 1, math.nan, 2]]},
        "negative age": {**good, "items": [[0, 1, 0.5, -2]]},
        "a flag": {**good, "items": [[True, 1, 0.5, 2]]},
    }


@pytest.mark.parametrize("fault", damaged())
def test_a_damaged_memory_is_refused(fault):
    memory = ClassMemory(4)
    memory.check_saved("memory", {"images": torch.zeros(4, 3, 8, 8), "items": [[0, 1, 0.5, 2]]})
    memory.check_saved("memory", {"images": None, "items": []})
    with pytest.raises(CheckpointError, match="memory"):
        memory.check_saved("memory", damaged()[fault])
