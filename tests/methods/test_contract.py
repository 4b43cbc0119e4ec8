"""Every method keeps every rule, on BatchNorm, GroupNorm and LayerNorm nets, in float32 and under bfloat16 autocast."""

from __future__ import annotations

import pytest

import steep
from contract import RULES, Case
from nets import NETS, net
from steep.errors import NothingToAdaptError

# Small enough to be quick, loose enough that every filter lets some image through on random nets.
QUICK = {
    "dua": {"images": 30, "copies": 4},
    "pl": {"threshold": 0.3, "lr": 1e-3},
    "eta": {"novelty": 2.0, "lr": 1e-2},
    "eata": {"novelty": 2.0, "lr": 1e-2},
    "tea": {"sgld_steps": 3, "buffer_size": 64},
}
ONLY_BATCH_NORM = {"bn", "dua"}
PAIRS = [(m, kind) for m in steep.METHODS for kind in NETS if m not in ONLY_BATCH_NORM or kind == "batch"]


def test_all_are_here():
    assert list(steep.METHODS) == ["source", "bn", "dua", "pl", "shot", "tent", "eta", "eata", "sar", "tea", "tea-fast"]
    assert len(RULES) == 10
    assert len(PAIRS) == 11 * 3 - 2 * 2


@pytest.mark.parametrize("bfloat16", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("method", "kind"), PAIRS)
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__)
def test_rule(rule, method, kind, bfloat16):
    rule(Case(method, net(kind), bfloat16, QUICK.get(method, {})))


@pytest.mark.parametrize("method", sorted(ONLY_BATCH_NORM))
@pytest.mark.parametrize("kind", ["group", "layer"])
def test_statistics_methods_refuse_a_model_without_batch_norm(method, kind):
    present = {"group": "2 GroupNorm", "layer": "2 LayerNorm"}[kind]
    with pytest.raises(NothingToAdaptError, match=present):
        steep.adapt(net(kind), method)
