"""steps=N: N updates on one batch, as Algorithm 1 has it; so N calls with that batch and one step each."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_flatten

import steep
from contract import answering
from reference import Adam, Hand, assert_close, assert_params, entropy_slope, make_images, make_net, only

HYPER = {
    "dua": {"copies": 4},
    "pl": {"lr": 1e-3},
    "shot": {"lr": 0.02},
    "tent": {"lr": 0.02},
    "eta": {"lr": 0.02, "novelty": 2.0},
    "eata": {"lr": 0.02, "novelty": 2.0},
    "rdumb": {"lr": 0.02, "novelty": 2.0},
    "sar": {"lr": 0.02},
    "deyo": {"lr": 0.02, "drop": -1.0},
    "cotta": {"lr": 0.02, "copies": 3},
    "memo": {"copies": 3},
    "rotta": {"lr": 0.02, "every": 10},
    "tea": {"lr": 0.02, "sgld_steps": 2, "buffer_size": 30},
}
STREAM = [make_images(seed) for seed in range(2)]


def adapter_of(method: str, **options):
    source = [make_images(50)] if method == "eata" else None
    return steep.adapt(make_net(), method, source=source, **HYPER.get(method, {}), **options)


def values(adapter) -> np.ndarray:
    """What it answers by, in one row."""
    leaves = tree_flatten(answering(adapter))[0]
    return np.concatenate([np.nan_to_num(t.numpy().ravel()) for t in leaves if isinstance(t, torch.Tensor)])


def test_tent_two_steps_by_hand():
    """The logits before an update are those before the last one; after it, those of the final model."""
    for predict in ("before", "after"):
        adapter, hand, optimizer = adapter_of("tent", steps=2, predict=predict), Hand(make_net()), Adam(0.02)
        for x in STREAM:
            logits = []
            for _ in range(2):
                z = hand.logits(x)
                logits.append(z)
                optimizer.step(hand.params, only(hand.backward(x, entropy_slope(z) / len(z))[0]))
            logits.append(hand.logits(x))
            assert_close(adapter(x), logits[1] if predict == "before" else logits[2])
            assert_params(adapter.model, hand)


@pytest.mark.parametrize("method", steep.METHODS)
def test_two_steps_are_two_calls(method):
    """Parameters, statistics and answers agree bit for bit, moments and chains included (second batch)."""
    twice, once = adapter_of(method, steps=2), adapter_of(method)
    for x in STREAM:
        together = twice(x)
        for _ in range(2):
            apart = once(x)
        assert torch.equal(together, apart)
        for name, value in twice.model.state_dict().items():
            assert torch.equal(value, once.model.state_dict()[name]), name


@pytest.mark.parametrize("method", [name for name, method in steep.METHODS.items() if method.moves])
def test_the_second_step_moves_on(method):
    """The second step is not the first over again, nor none at all."""
    moved = []
    for steps in (1, 2):
        adapter = adapter_of(method, steps=steps)
        adapter(STREAM[0])
        moved.append(values(adapter))
    start = values(adapter_of(method))
    assert len(start) < len(moved[0]) or np.abs(moved[0] - start).max() > 1e-5
    assert np.abs(moved[1] - moved[0]).max() > 1e-5
