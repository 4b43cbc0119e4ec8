"""The methods of `experiments/tea_terms.py` are TEA but for what each names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import steep
from steep.methods import METHODS, find
from steep.models import build

FILE = Path(__file__).parents[2] / "experiments/tea_terms.py"
SMALL: dict[str, Any] = {"sgld_steps": 2, "chains": 6, "buffer_size": 10}


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def answers(name: str, **hyper: Any) -> torch.Tensor:
    """What a method answers to the last of three batches."""
    torch.manual_seed(0)
    model = build("wrn-10-1", 5).eval()
    adapter = steep.adapt(model, name if name in METHODS else find(f"{FILE}:{name}")(), guard="off", **SMALL, **hyper)
    images = torch.rand(3, 20, 3, 8, 8)
    return [adapter(x) for x in images][-1]


def test_without_its_terms_diverse_is_tea() -> None:
    plain = answers("tea", lr=0.01)
    assert torch.equal(plain, answers("Diverse", lr=0.01, diversity=0.0, label_weight=0.0))
    assert not torch.equal(plain, answers("Diverse", lr=0.01, label_weight=0.0))


@pytest.mark.parametrize("name", ["OfClasses", "FromImages", "Together"])
def test_each_answers_otherwise_than_tea(name: str) -> None:
    changed = answers(name, lr=0.01)
    assert changed.isfinite().all()
    assert not torch.equal(changed, answers("tea", lr=0.01))


def test_diverse_holds_answers_apart() -> None:
    def largest(**hyper: Any) -> float:
        return float(answers("Diverse", lr=0.05, label_weight=0.0, **hyper).softmax(dim=1).mean(dim=0).max())

    assert largest(diversity=20.0) < largest(diversity=0.0)
