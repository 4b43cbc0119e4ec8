"""Features before the last linear layer: found in models of many shapes, and refused by name where there are none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import steep
from nets import NETS, images, net
from steep.core.classifier import Classifier
from steep.core.features import features_of
from steep.core.method import Need
from steep.errors import InputError, NothingToAdaptError

METHODS = [name for name, method in steep.METHODS.items() if Need.FEATURES in method.needs]


class TwoHeads(nn.Module):
    """The head is registered first, a hidden layer last, and another head answers other classes."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.other = nn.Linear(7, 5), nn.Linear(7, 3)
        self.hidden = nn.Linear(192, 7)

    def forward(self, x):
        h = self.hidden(x.flatten(1)).relu()
        return {"logits": self.head(h) / 2, "aside": self.other(h)}


def test_the_features_are_what_the_head_saw():
    model = TwoHeads()
    x = images()
    seen = features_of(Classifier(model), x)
    torch.testing.assert_close(seen.features, model.hidden(x.flatten(1)).relu())
    torch.testing.assert_close(seen.logits, model.head(seen.features) / 2)
    assert seen.head is model.head
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("kind", NETS)
def test_the_head_of_every_net_gives_the_logits(kind):
    model = Classifier(net(kind))
    logits, features, head = features_of(model, images())
    torch.testing.assert_close(head(features), logits)


def test_the_features_of_packaged_models_and_in_half_precision():
    for name, width in (("wrn-10-1", 64), ("resnet-18-bn", 512)):
        model = Classifier(steep.models.build(name, 10))
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            seen = features_of(model, torch.rand(2, 3, 32, 32))
        assert seen.features.shape == (2, width)
        assert seen.features.dtype == torch.float32


def headless() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize("method", METHODS)
def test_a_model_without_a_last_linear_layer_is_refused_with_what_it_has(method):
    with pytest.raises(NothingToAdaptError, match=r"has none.*1 Conv2d.*'tent'"):
        steep.adapt(headless(), method)
    hidden = nn.Sequential(nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 9))
    model = nn.Sequential(hidden, nn.Unflatten(1, (9, 1)), nn.Conv1d(9, 5, 1), nn.Flatten())
    adapter = steep.adapt(model, method)
    before = adapter.state_dict()
    with pytest.raises(InputError, match=r"\(B, 5\).*1 linear layers"):
        adapter(images())
    assert str(adapter.state_dict()) == str(before)
    assert not any(m._forward_hooks for m in adapter.model.modules())


@pytest.mark.parametrize("method", METHODS)
def test_recomputed_they_answer_the_same(method):
    torch.manual_seed(0)
    model = steep.models.build("wrn-10-1", 5)
    plain, other = steep.adapt(model, method), steep.adapt(model, method, recompute=True)
    for _ in range(3):
        x = torch.rand(16, 3, 16, 16)
        torch.testing.assert_close(other(x), plain(x), rtol=0, atol=1e-5)


def test_what_a_method_without_moving_model_remembers_is_guarded_saved_and_reset(tmp_path):
    """On a net that has no buffer at all: nothing of the model can move."""
    adapter = steep.adapt(net("layer"), "t3a", guard="recover")
    first = [adapter(images(seed=s)) for s in range(4)]
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net("layer"))
    assert torch.equal(resumed(images(seed=4)), adapter(images(seed=4)))
    adapter.reset()
    assert adapter.state_dict()["state"]["supports"] is None
    assert all(torch.equal(adapter(images(seed=s)), first[s]) for s in range(4))
