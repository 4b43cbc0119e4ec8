"""Every method keeps every rule, on BatchNorm, GroupNorm and LayerNorm nets, in float32 and under bfloat16 autocast."""

from __future__ import annotations

from pathlib import Path

import pytest

import steep
from contract import RULES, Case
from nets import NETS, net
from steep import methods
from steep.core.method import Need

# Small enough to be quick, loose enough that every filter lets some image through on random nets.
QUICK = {
    "dua": {"images": 30, "copies": 4},
    "pl": {"threshold": 0.3, "lr": 1e-3},
    "eta": {"novelty": 2.0, "lr": 1e-2},
    "eata": {"novelty": 2.0, "lr": 1e-2},
    "deyo": {"margin": 2.0, "drop": -1.0, "lr": 1e-2},
    "rdumb": {"novelty": 2.0, "lr": 1e-2, "every": 2},
    "cotta": {"copies": 2},
    "memo": {"copies": 3},
    "rotta": {"memory": 1, "every": 20, "lr": 1e-2},
    "tea": {"sgld_steps": 3, "buffer_size": 64},
    "tea-fast": {"sgld_steps": 3, "buffer_size": 64},
}
PAIRS = [
    (name, kind)
    for name, method in steep.METHODS.items()
    for kind in NETS
    if kind == "batch" or Need.BATCH_NORM not in method.needs
]


def test_every_file_is_registered():
    files = {path.stem for path in Path(methods.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    assert {f"steep.methods.{file}" for file in files} == {method.__module__ for method in steep.METHODS.values()}
    assert len(RULES) == 12
    assert len(PAIRS) >= 11 * 3 - 2 * 2


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("method", "kind"), PAIRS)
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_rule(rule, method, kind, bfloat16):
    rule(Case(method, net(kind), bfloat16, QUICK.get(method, {})))
