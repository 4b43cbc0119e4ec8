"""Wrongly scaled images are noticed and the fix is named; corrupted ones are not taken for them."""

from __future__ import annotations

import warnings
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steep
from nets import images, net
from steep.corruptions import BENCHMARK
from steep.errors import SteepWarning
from steep.models import Normalized
from steep.training import TrainingSpec, train

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MEAN, STD = (torch.tensor(v).view(3, 1, 1) for v in IMAGENET)
CENTRED = [0.5] * 3, [0.5] * 3


@pytest.fixture(scope="module")
def wrn() -> nn.Module:
    """The shipped CIFAR-10 model, which takes images in [0, 1]."""
    model = steep.models.build("wrn-40-2", 10)
    steep.models.checkpoints.load(model, Path(str(resources.files("steep") / "assets/cifar10-wrn-40-2.safetensors")))
    # its beginning, with the norm layers that are looked at, is enough and quick
    return nn.Sequential(model.conv1, model.block1.layer[0], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


@pytest.fixture(scope="module")
def patches() -> np.ndarray:
    """32 × 32 cuts from two photographs that come with scikit-learn, uint8 (64, 32, 32, 3)."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    small = [np.array(Image.fromarray(photo).reduce(3)) for photo in load_sample_images().images]
    generator = np.random.default_rng(0)
    cuts = []
    for number in range(64):
        photo = small[number % 2]
        top, left = (generator.integers(side - 32) for side in photo.shape[:2])
        cuts.append(photo[top : top + 32, left : left + 32])
    return np.stack(cuts)


class Unnormalised(nn.Module):
    """The shipped model as it would be, had it been trained on normalised images."""

    def __init__(self, model: nn.Module, mean, std) -> None:
        super().__init__()
        self.model = model
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (mean, std))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.std + self.mean)


def tensor(pixels: np.ndarray) -> Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def warning_for(model: nn.Module, x: Tensor, method: str = "source") -> str | None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steep.adapt(model, method)(x)
    messages = [str(w.message) for w in caught if issubclass(w.category, SteepWarning)]
    assert len(messages) <= 1
    return messages[0] if messages else None


@pytest.mark.parametrize("method", ["source", "bn"])
def test_images_in_0_to_255(wrn, patches, method):
    for n in (64, 1):
        assert "if you divide by 255: x / 255" in warning_for(wrn, 255 * tensor(patches[:n]), method)


def test_images_normalised_for_a_model_that_takes_them_plain(wrn, patches):
    x = tensor(patches)
    for wrong in ((x - MEAN) / STD, (x - 0.5) / 0.5):
        assert "leave your own normalisation out" in warning_for(wrn, wrong)


def test_images_not_normalised_normalised_twice_or_in_bytes(wrn, patches):
    x, model = tensor(patches), Unnormalised(wrn, *IMAGENET)
    assert "wrap the model: steep.models.Normalized(model, mean, std)" in warning_for(model, x)
    assert "divide by 255: x / 255, and wrap the model" in warning_for(model, 255 * x)
    assert "leave your own normalisation out" in warning_for(model, ((x - MEAN) / STD - MEAN) / STD)
    wrapped = Normalized(model, *IMAGENET)
    assert warning_for(wrapped, x) is None
    assert "leave your own normalisation out" in warning_for(wrapped, (x - MEAN) / STD)


@pytest.mark.parametrize("name", [*BENCHMARK, "clean"])
def test_corrupted_images_are_no_mistake(wrn, patches, name):
    x = tensor(patches if name == "clean" else steep.corrupt(patches, name, 5, seed=0))
    for n in (64, 16, 1):
        assert warning_for(wrn, x[:n]) is None
        assert warning_for(Unnormalised(wrn, *IMAGENET), (x[:n] - MEAN) / STD) is None


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> tuple[nn.Module, np.ndarray]:
    spec = TrainingSpec.from_recipe("train-digits", {"epochs": 4, "limit": 640})
    file = train(spec, tmp_path_factory.mktemp("weights") / "digits.safetensors").weights
    model = steep.models.build("wrn-10-1", 10, in_channels=1)
    steep.models.checkpoints.load(model, file)
    return model, steep.data.load("digits", limit=100).images


def test_digits(digits):
    model, pixels = digits
    for name in BENCHMARK:
        assert warning_for(model, tensor(steep.corrupt(pixels, name, 5, seed=0))) is None, name
    x = tensor(np.array(pixels))
    assert warning_for(model, x) is None
    assert "divide by 255" in warning_for(model, 255 * x)
    assert "leave your own normalisation out" in warning_for(model, (x - 0.45) / 0.225)


def test_once_for_an_adapter_whatever_shapes_come(wrn, patches):
    adapter = steep.adapt(wrn, "source")
    x = 255 * tensor(patches[:16])
    with pytest.warns(SteepWarning, match="divide by 255"):
        adapter(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter(x)
        adapter(x[..., :24, :24])


def test_models_without_statistics_are_judged_by_the_range_of_values():
    x = images(20)
    for kind in ("layer", "group"):
        assert warning_for(net(kind), x) is None
        assert warning_for(net(kind), (x - 0.5) / 0.25) is None
        assert "They look like 0–255: divide by 255" in warning_for(net(kind), 255 * x)
    wrapped = Normalized(net("layer"), *CENTRED)
    assert warning_for(wrapped, 1.2 * x - 0.1) is None  # a little over the edge, as after resizing
    assert "This model takes 0 to 1, so leave your own" in warning_for(wrapped, (x - 0.5) / 0.25)
    model = net("layer")
    model.pretrained_cfg = {"mean": IMAGENET[0], "std": IMAGENET[1]}  # as timm's models carry it
    assert "steep.models.normalized(model) does it" in warning_for(model, x)
    assert warning_for(model, (x - MEAN) / STD) is None
    assert warning_for(steep.models.normalized(model), x) is None


def test_statistics_that_no_training_left_are_not_believed():
    """A fresh model, and one whose statistics somebody made up."""
    assert warning_for(steep.models.build("wrn-10-1", 10), images(20, size=32)) is None
    assert warning_for(net("batch"), images(20)) is None
    young = net("batch")
    steep.adapt(young, "dua", inplace=True)(
        images(20)
    )  # moved by a few images, as dua does: neither the one nor the other
    assert warning_for(young, images(20, seed=1)) is None


class ConvNormAct(nn.Sequential):
    """Named like a norm layer, as timm's is, and holding one."""


def test_a_block_that_is_named_like_a_norm_layer_hides_none(wrn, patches):
    (conv, block, *rest), x = wrn, tensor(patches)
    model = nn.Sequential(ConvNormAct(conv, block), *rest)
    assert warning_for(model, x) is None
    assert "leave your own normalisation out" in warning_for(model, (x - MEAN) / STD)


class Counting(nn.Module):
    """Answers by how often it was called, as a model with a schedule of its own may."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.model(x) + self.calls * torch.arange(10.0)


@pytest.mark.parametrize("method", ["source", "tent"])
def test_looking_leaves_no_trace(wrn, patches, method, monkeypatch):
    """A batch that is looked at and warned about is answered as one that is not, and replays."""
    stream = [255 * tensor(patches[:16]), 255 * tensor(patches[16:32]), 255 * tensor(patches[32:48, :24, :24])]

    def answered(adapter: steep.Adapter) -> list[Tensor]:
        return [adapter(x) for x in stream]

    looking = steep.adapt(Counting(wrn), method, deterministic=True)
    with pytest.warns(SteepWarning, match="divide by 255"):
        first = answered(looking)
    looking.reset()
    again = answered(looking)
    monkeypatch.setattr("steep.core.io.input_scale.check", lambda *_: None)
    unseen = answered(steep.adapt(Counting(wrn), method, deterministic=True))
    for one, two, three in zip(first, again, unseen, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    hooks = [hook for module in looking.model.modules() for hook in module._forward_pre_hooks.values()]
    assert not [hook for hook in hooks if "ScaleProbe" in getattr(hook, "__qualname__", "")]


def test_drift_that_no_benchmark_has_is_no_mistake(wrn, patches):
    """Night, glare, haze, ink on paper, one colour: far from usual, and no rescaling mends it."""
    x = tensor(patches)
    grey = x.mean(dim=1, keepdim=True)
    drifts = {
        "night": 0.1 * x,
        "deep night": 0.02 * x,
        "glare": 0.8 + 0.2 * x,
        "haze": 0.5 + 0.1 * (x - 0.5),
        "dim haze": 0.25 + 0.3 * (x - 0.5),
        "gamma": x**0.3,
        "red light": x * torch.tensor([1.0, 0.1, 0.1]).view(3, 1, 1),
        "ink": (1 - 3 * (grey - grey.roll(1, 3)).abs()).expand_as(x),
        "black": torch.zeros_like(x),
        "white": torch.ones_like(x),
    }
    for name, drifted in drifts.items():
        pixels = (drifted.clamp(0, 1) * 255).round() / 255
        assert warning_for(wrn, pixels) is None, name
