"""A saved state that somebody has changed is refused, or harmless; whatever happens, the adapter is whole."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest
import torch
from test_guard import QUICK

import steep
from nets import images, net
from steep.core.io import saving
from steep.errors import CheckpointError, SteepError

pytestmark = pytest.mark.hostile

METHODS = {name: QUICK.get(name, {}) for name, method in steep.METHODS.items() if not method.baseline}
CHANGES = (
    torch.zeros(0),
    torch.zeros(3, 5),
    torch.zeros(2, dtype=torch.int64),
    "text",
    None,
    -1,
    float("nan"),
    [],
    {},
    True,
)


def made(method: str, guard: str = "recover") -> steep.Adapter:
    return steep.adapt(net(), method, guard=guard, source=[images(20, seed=99)], **METHODS[method])


def adapted(method: str, guard: str = "recover") -> steep.Adapter:
    adapter = made(method, guard)
    for seed in range(3):
        adapter(images(seed=seed))
    return adapter


def places(tree, path=()):
    """Every key of nested data, leaves and branches."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(tree, path, value):
    tree = copy.deepcopy(tree)
    at = tree
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return tree


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


@pytest.mark.parametrize(("method", "name"), [("tent", "exp_avg"), ("tent", "exp_avg_sq"), ("sar", "momentum_buffer")])
def test_an_optimiser_never_gets_a_tensor_of_another_shape(method: str, name: str) -> None:
    """Fused optimisers write where the parameter is long, whatever their own tensors are: that is out of bounds."""
    saved = adapted(method).state_dict()
    saved["state"]["optimizer"]["state"][0][name] = torch.zeros(0)
    fresh = steep.adapt(net(), method, guard="recover", **METHODS[method])
    before = fresh.state_dict()
    with pytest.raises(CheckpointError, match=name):
        fresh.load_state_dict(saved)
    assert same(fresh.state_dict(), before)


@pytest.mark.parametrize("guard", ["recover", "skip"])
@pytest.mark.parametrize("method", METHODS)
def test_any_changed_leaf_is_refused_with_nothing_changed_or_leaves_an_adapter_that_works(
    method: str, guard: str
) -> None:
    adapter = adapted(method, guard)
    saved = adapter.state_dict()
    every = [path for path in places(saved) if path[0] in ("state", "initial", "guard", "watch")]
    draw = random.Random(0)
    target = made(method, guard)
    refused = 0
    for path in draw.sample(every, min(len(every), 60)):
        before = target.state_dict()
        try:
            target.load_state_dict(changed(saved, path, draw.choice(CHANGES)))
        except SteepError:
            refused += 1
            assert same(target.state_dict(), before), path
        else:
            for seed in (8, 9):
                answer = target(images(60, seed=seed))
                assert answer.shape == (60, 5), path
                assert target.last.skipped is None or "raised" not in target.last.skipped, path
    assert refused > 15
    target.load_state_dict(saved)
    assert torch.equal(target(images(seed=5)), adapter(images(seed=5)))


@pytest.mark.parametrize(
    "part", [{"method": None}, {"hyper": 3}, {"options": 3}, {"options": {"unheard_of": 1}}], ids=lambda part: str(part)
)
def test_a_file_with_unreadable_parts_is_refused_by_name(part: dict[str, object], tmp_path: Path) -> None:
    saved = adapted("tent").state_dict() | part
    saving.save(saved, tmp_path / "state")
    with pytest.raises(CheckpointError, match=next(iter(part))):
        steep.resume(tmp_path / "state", net())
