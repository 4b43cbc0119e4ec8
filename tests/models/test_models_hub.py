"""timm and torchvision through stand-ins with their interfaces; the libraries themselves where they are installed."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import steep
from steep.errors import InputError, NothingToAdaptError
from steep.models import Normalized, normalized
from steep.models.normalisation import InputSpec, input_spec
from steep.predicting import load_model

InterpolationMode = Enum("InterpolationMode", {"BILINEAR": "bilinear"})  # as torchvision has it
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BatchNormAct2d(nn.BatchNorm2d):
    """timm's fused layer: normalises by its own call, then activates."""

    def forward(self, x):
        use_batch = self.training or self.running_mean is None
        stats = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        return F.silu(F.batch_norm(x, *stats, self.weight, self.bias, use_batch, self.momentum, self.eps))


class GroupNormAct(nn.GroupNorm):
    def forward(self, x):
        return F.relu(F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps))


class RmsNorm2d(nn.Module):
    """Of no torch class, named as in timm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return x * (x.square().mean(dim=1, keepdim=True) + 1e-6).rsqrt() * self.weight[:, None, None]


NORMS = {"bna": BatchNormAct2d, "gna": lambda c: GroupNormAct(2, c), "rms": RmsNorm2d, "none": lambda c: nn.Identity()}


def small(norm: str, num_classes: int = 4) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), NORMS[norm](8), nn.Conv2d(8, 8, 3), NORMS[norm](8)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes)).eval()


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, pretrained=False, num_classes=4):
        model = small(name, num_classes)
        model.pretrained_cfg = {"mean": MEAN, "std": STD, "input_size": (3, 160, 160), "crop_pct": 0.9}
        return model

    module = ModuleType("timm")
    module.create_model = create_model
    names = SimpleNamespace(label_descriptions=lambda: ["ant", "bee", "cat", "dog"])
    subsets = {4: "imagenet-4"}
    module.data = SimpleNamespace(
        infer_imagenet_subset=lambda model: subsets.get(model[-1].out_features),
        ImageNetInfo=lambda subset: names if subset in subsets.values() else None,
    )
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


@pytest.mark.parametrize(("door", "way_out"), [("timm", False), ("hf", True)])
def test_a_torchvision_of_another_build_is_told_of(door, way_out, monkeypatch):
    """As it comes from a package registry beside a torch for processors alone; its error is hidden behind another."""

    def broken(*arguments, **options):
        try:
            raise RuntimeError("operator torchvision::nms does not exist")
        except RuntimeError as error:
            raise ModuleNotFoundError("Could not import module 'Net'.\nMore") from error

    for name in ("timm", "transformers"):
        module = ModuleType(name)
        module.create_model, module.AutoConfig = broken, SimpleNamespace(from_pretrained=broken)
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(InputError, match=r"Could not import module 'Net'.*torchvision::nms.*another build") as caught:
        load_model(f"{door}:net", pretrained=True)
    assert ("pip uninstall torchvision" in str(caught.value)) == way_out  # timm cannot do without


@pytest.fixture
def torchvision(monkeypatch):
    eye = SimpleNamespace(mean=list(MEAN), std=list(STD), crop_size=[176], resize_size=[232])
    weights = SimpleNamespace(transforms=lambda: eye, meta={"categories": ["ant", "bee", "cat", "dog"]})
    models = SimpleNamespace(
        get_model_weights=lambda name: SimpleNamespace(DEFAULT=weights),
        get_model=lambda name, weights=None, num_classes=4: small(name, num_classes),
    )
    module = ModuleType("torchvision")
    module.models = models
    monkeypatch.setitem(sys.modules, "torchvision", module)
    return weights


@pytest.mark.parametrize("norm", ["bna", "gna", "rms"])
@pytest.mark.parametrize("method", ["tent", "tea"])
def test_fused_and_foreign_norm_layers_adapt(norm, method):
    adapter = steep.adapt(small(norm), method, **({"sgld_steps": 2, "buffer_size": 32} if method == "tea" else {}))
    before = {n: p.clone() for n, p in adapter.model.named_parameters()}
    assert torch.isfinite(adapter(torch.rand(16, 3, 12, 12))).all()
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert {n.split(".")[0] for n in moved} <= {"1", "3"}


def test_a_model_without_norm_layers_says_what_to_set():
    with pytest.raises(NothingToAdaptError, match=r"It has: 2 Conv2d, 1 Linear.*params=\"all\", params=\[\"linear\"\]"):
        steep.adapt(small("none"), "tea")
    x = torch.rand(16, 3, 12, 12)
    assert torch.isfinite(steep.adapt(small("none"), "tent", params=["linear"], lr=1e-4)(x)).all()


def test_timm_brings_its_data_configuration(timm):
    loaded = load_model("timm:bna", pretrained=True)
    assert isinstance(loaded.model, Normalized)
    assert (loaded.size, loaded.classes) == (160, ("ant", "bee", "cat", "dog"))
    assert load_model("timm:bna", pretrained=True, num_classes=7).classes == ()  # a head of its own, not yet trained
    torch.testing.assert_close(loaded.model.mean.flatten(), torch.tensor(MEAN))
    x = torch.rand(2, 3, 12, 12)
    wanted_input = torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], 1)
    torch.testing.assert_close(loaded.model(x), small("bna")(wanted_input))


def test_weights_of_one_s_own_keep_the_normalisation_of_the_architecture(timm, tmp_path):
    file = steep.models.checkpoints.save(small("gna", 7), tmp_path / "mine.safetensors")
    loaded = load_model("timm:gna", weights=file, num_classes=7)
    assert isinstance(loaded.model, Normalized)
    assert loaded.classes == ()
    chosen = load_model("timm:gna", weights=file, num_classes=7, mean=[0.1] * 3, std=[1.0] * 3)
    assert chosen.model.mean.flatten().tolist() == pytest.approx([0.1] * 3)


def test_torchvision_brings_its_transforms_and_class_names(torchvision):
    loaded = load_model("torchvision:bna", pretrained=True)
    assert (loaded.size, loaded.classes) == (176, ("ant", "bee", "cat", "dog"))
    torch.testing.assert_close(loaded.model.std.flatten(), torch.tensor(STD))
    with pytest.raises(InputError, match="num_classes: the pretrained bna has 4, got 9"):
        load_model("torchvision:bna", pretrained=True, num_classes=9)
    torch.testing.assert_close(normalized(small("bna"), torchvision).mean.flatten(), torch.tensor(MEAN))


@pytest.mark.parametrize(
    ("config", "mean", "std", "size"),
    [
        ({"image_mean": [0.5], "image_std": [0.25], "size": 224}, (0.5,), (0.25,), 224),
        ({"mean": [0.5], "std": [0.25], "size": {"shortest_edge": 256}, "crop_size": 224}, (0.5,), (0.25,), 224),
        (
            {"image_mean": [0.5], "image_std": [0.25], "do_center_crop": False, "crop_size": 9, "size": {"height": 32}},
            (0.5,), (0.25,), 32,
        ),
        ({"image_mean": [127.5], "image_std": [51.0], "do_rescale": False}, (0.5,), (0.2,), None),
        ({"mean": [0.0], "std": [1.0], "rescale_factor": 1 / 127.5, "rescale_offset": True}, (0.5,), (0.5,), None),
        ({"image_mean": [0.5], "image_std": [0.5], "do_normalize": False}, None, None, None),
        ({"do_normalize": False, "rescale_factor": 1 / 255}, None, None, None),
        ({}, None, None, None),
    ],
)  # fmt: skip
def test_configurations_of_many_kinds(config, mean, std, size):
    spec = input_spec(config)
    assert spec == input_spec(SimpleNamespace(**config))
    assert (spec.mean, spec.std, spec.size) == (mean, std, size)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"input_size": (3, 240, 240), "crop_pct": 0.95, "interpolation": "bicubic"}, (240, 0.95, "bicubic")),  # timm
        ({"input_size": (3, 224, 224)}, (224, None, None)),
        (
            {"crop_size": [224], "resize_size": [256], "interpolation": InterpolationMode.BILINEAR},
            (224, 0.875, "bilinear"),
        ),
        ({"size": {"shortest_edge": 256}, "crop_size": {"height": 192}, "resample": 3}, (192, 0.75, "bicubic")),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 2}, (224, 0.875, "bilinear")),
        ({"size": {"height": 224, "width": 224}, "resample": 2}, (224, 1.0, "bilinear")),
        ({"size": 224, "crop_pct": 7, "interpolation": "random"}, (224, None, None)),
    ],
)  # fmt: skip
def test_what_a_library_says_of_resize_and_crop(config, expected):
    spec = input_spec(config)
    assert (spec.size, spec.crop, spec.interpolation) == expected


def test_who_says_nothing_is_asked_for_numbers():
    with pytest.raises(InputError, match=r"Sequential says none.*steep.models.Normalized\(model, mean, std\)"):
        normalized(small("bna"))
    with pytest.raises(InputError, match="has its normalisation already"):
        normalized(Normalized(small("bna"), MEAN, STD))


def test_the_real_timm():
    timm = pytest.importorskip("timm")
    model = timm.create_model("resnet18", pretrained=False)
    mean, std = (tuple(model.pretrained_cfg[name]) for name in ("mean", "std"))
    assert input_spec(model) == InputSpec(mean, std, 224, model.pretrained_cfg["crop_pct"], "bilinear")


def test_the_real_torchvision():
    models = pytest.importorskip("torchvision.models")
    assert input_spec(models.ResNet18_Weights.DEFAULT) == InputSpec(MEAN, STD, 224, 0.875, "bilinear")
