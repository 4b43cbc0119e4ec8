"""Tent, ETA and ROID by SGD with momentum, as published for ImageNet; beside plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import steep
from steep.bench.recipe import plan


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 5))


def test_two_steps_of_tent_are_those_of_plain_sgd():
    x = torch.rand(2, 16, 3, 8, 8)
    adapter = steep.adapt(small(), "tent", optimizer="sgd", lr=2.5e-2)
    plain = small().train()
    optimizer = torch.optim.SGD(plain[1].parameters(), lr=2.5e-2, momentum=0.9)
    for batch in x:
        answer, logits = adapter(batch), plain(batch)
        assert torch.allclose(answer, logits, atol=1e-6)
        p = logits.softmax(1)
        optimizer.zero_grad()
        (-(p * p.log()).sum(1).mean()).backward()
        optimizer.step()
    assert torch.allclose(adapter(x[0]), plain(x[0]), atol=1e-6)


@pytest.mark.parametrize("method", ["eta", "eata", "roid", "cmf"])
@pytest.mark.filterwarnings("ignore:eata has no source images")
def test_sgd_and_adam_are_not_the_same(method):
    x = torch.rand(3, 16, 3, 8, 8)
    more = {"novelty": 1.0} if method in ("eta", "eata") else {}
    answers = {}
    for optimizer in ("sgd", "adam"):
        adapter = steep.adapt(small(), method, optimizer=optimizer, lr=1e-2, **more)
        answers[optimizer] = [adapter(batch) for batch in x][-1]
        assert answers[optimizer].isfinite().all()
    assert not torch.allclose(answers["sgd"], answers["adam"])


def test_rows_from_before_there_was_a_choice_keep_their_keys():
    usual, chosen = (
        plan("digits", only=["method=tent", "shift=fog"], sets=sets, require=False).cells[0]
        for sets in ([], ["tent.optimizer=sgd"])
    )
    assert "optimizer" not in dict(usual.hyper)
    assert dict(chosen.hyper)["optimizer"] == "sgd"
