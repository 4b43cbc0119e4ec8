"""Lines of docs/deviations.md about what moves, and how far, that no derivation comes by."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import steep
from reference import Momentum, assert_close, assert_params, make_images, make_net
from test_derivations_deyo import HandDeyo
from test_derivations_entropy import HandSar


def adapted(adapter: steep.Adapter) -> set[str]:
    return {name for name, p in adapter.model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("method", ["sar", "deyo"])
def test_no_stage_is_left_out_by_its_name(method):
    """The published codes leave out `layer4`, `blocks.9` and so on; `params=` does it for a model that has them."""
    torch.manual_seed(0)
    net = steep.models.build("resnet-18-gn", 10, width=8, groups=4)
    layers = [name for name, module in net.named_modules() if isinstance(module, nn.GroupNorm)]
    norms = {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert adapted(steep.adapt(net, method)) == norms
    without = adapted(steep.adapt(net, method, params=r"^(?!layer4)\S*(bn\d|downsample\.1)\."))
    assert without == {name for name in norms if not name.startswith("layer4")}
    assert len(without) < len(norms)


@pytest.mark.parametrize(
    ("method", "hyper", "hand"),
    [
        ("sar", {"lr": 0.02}, lambda net: HandSar(net, lr=0.02)),
        ("deyo", {"lr": 0.02, "drop": 0.02}, lambda net: HandDeyo(net, Momentum(0.02), drop=0.02)),
    ],
)
def test_a_small_batch_teaches_at_the_same_rate(method, hyper, hand):
    """The published scripts lower the rate in proportion for batches of fewer than 32."""
    net, x = make_net(sharpness=6.0), make_images(0, 8, side=8)
    adapter, by_hand = steep.adapt(net, method, **hyper), hand(net)
    assert_close(adapter(x), by_hand.hand.logits(x))
    by_hand.update(x)
    assert adapter.last.used
    assert_params(adapter.model, by_hand.hand)


class Gain(nn.Module):
    """A parameter that is named neither weight nor bias, as a vision transformer's `cls_token`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gain, self.fc = nn.Conv2d(3, 4, 3), nn.Parameter(torch.ones(4, 1, 1)), nn.Linear(4, 5)

    def forward(self, x):
        return self.fc((self.gain * self.conv(x)).relu().mean(dim=(2, 3)))


def test_cotta_moves_parameters_whatever_their_names():
    """The published code moves and restores those named weight or bias."""
    torch.manual_seed(0)
    net = Gain()
    adapter = steep.adapt(net, "cotta", copies=2, restore=0.0)
    adapter(torch.rand(16, 3, 8, 8))
    names = [name for name, _ in net.named_parameters()]
    student = dict(zip(names, adapter.state_dict()["state"]["student"], strict=True))
    assert all(not torch.equal(student[name], p) for name, p in net.named_parameters())
