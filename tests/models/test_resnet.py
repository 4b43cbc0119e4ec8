"""ResNet: the published sizes and names, both norms, and a block computed by other means."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from steep.errors import InputError
from steep.models import build
from steep.models.resnet import ResNet

SMALL = {"width": 8}


# 11.17M is the CIFAR ResNet-18 everyone quotes; 23.52M the ResNet-50. Affine norms count the same, so GN equals BN.
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("resnet-18-bn", 11_173_962),
        ("resnet-18-gn", 11_173_962),
        ("resnet-34-bn", 21_282_122),
        ("resnet-50-bn", 23_520_842),
        ("resnet-50-gn", 23_520_842),
    ],
)
def test_parameter_count(name, count):
    with torch.device("meta"):
        assert sum(p.numel() for p in build(name, 10).parameters()) == count


def test_keys_are_those_of_torchvision():
    with torch.device("meta"):
        keys = set(build("resnet-50-gn", 10).state_dict())
    assert {"conv1.weight", "bn1.bias", "layer1.0.conv3.weight", "layer1.0.downsample.1.weight"} <= keys
    assert {"layer3.5.bn3.weight", "layer4.2.conv2.weight", "fc.weight", "fc.bias"} <= keys
    assert not any("running" in key for key in keys)
    # 1 stem, 16 blocks of 3, 4 projections; each convolution has one tensor and its norm two; fc has two
    assert len(keys) == 3 * (1 + 16 * 3 + 4) + 2


@pytest.mark.parametrize(("name", "kind"), [("resnet-18-bn", nn.BatchNorm2d), ("resnet-50-gn", nn.GroupNorm)])
def test_name_decides_the_norm(name, kind):
    with torch.device("meta"):
        net = build(name, 10)
    norms = [m for m in net.modules() if isinstance(m, (nn.BatchNorm2d, nn.GroupNorm))]
    assert norms
    assert all(type(m) is kind for m in norms)
    if kind is nn.GroupNorm:
        assert {m.num_groups for m in norms} == {32}


def test_stem_keeps_the_resolution():
    net = build("resnet-18-bn", 10, **SMALL).eval()
    sizes = []
    for stage in (net.layer1, net.layer2, net.layer3, net.layer4):
        stage.register_forward_hook(lambda _m, _i, out: sizes.append(tuple(out.shape[1:])))
    net(torch.rand(1, 3, 32, 32))
    assert sizes == [(8, 32, 32), (16, 16, 16), (32, 8, 8), (64, 4, 4)]


def group_norm(x, layer):
    """GroupNorm from its definition."""
    parts = x.unflatten(1, (layer.num_groups, -1))
    mean = parts.mean((2, 3, 4), keepdim=True)
    var = parts.var((2, 3, 4), correction=0, keepdim=True)
    flat = ((parts - mean) / (var + 1e-5).sqrt()).flatten(1, 2)
    return flat * layer.weight[:, None, None] + layer.bias[:, None, None]


@pytest.mark.parametrize("position", [0, 1])
def test_bottleneck_equals_an_independent_computation(position):
    torch.manual_seed(0)
    net = ResNet(50, 10, norm="group", groups=4, width=8).double()
    block = net.layer2[position]
    stride = 2 if position == 0 else 1
    for layer in block.modules():
        if isinstance(layer, nn.GroupNorm):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
    x = torch.randn(2, 32 if position == 0 else 64, 6, 5, dtype=torch.float64)
    out = group_norm(torch.einsum("oi,bihw->bohw", block.conv1.weight[:, :, 0, 0], x), block.bn1).relu()
    out = group_norm(F.conv2d(out, block.conv2.weight, stride=stride, padding=1), block.bn2).relu()
    out = group_norm(torch.einsum("oi,bihw->bohw", block.conv3.weight[:, :, 0, 0], out), block.bn3)
    shortcut = x
    if position == 0:
        projection, norm = block.downsample
        shortcut = torch.einsum("oi,bihw->bohw", projection.weight[:, :, 0, 0], x[:, :, ::2, ::2])
        shortcut = group_norm(shortcut, norm)
    torch.testing.assert_close(block(x), (out + shortcut).relu())


@pytest.mark.parametrize("position", [0, 1])
def test_basic_block_equals_an_independent_computation(position):
    torch.manual_seed(0)
    block = ResNet(18, 10, norm="group", groups=4, width=8).double().layer2[position]
    stride = 2 if position == 0 else 1
    x = torch.randn(2, 8 if position == 0 else 16, 7, 5, dtype=torch.float64)
    out = group_norm(F.conv2d(x, block.conv1.weight, stride=stride, padding=1), block.bn1).relu()
    out = group_norm(F.conv2d(out, block.conv2.weight, padding=1), block.bn2)
    shortcut = x
    if position == 0:
        shortcut = group_norm(F.conv2d(x[:, :, ::2, ::2], block.downsample[0].weight), block.downsample[1])
    torch.testing.assert_close(block(x), (out + shortcut).relu())


@pytest.mark.parametrize("name", ["resnet-18-bn", "resnet-50-gn"])
@pytest.mark.parametrize(("channels", "size"), [(3, (32, 32)), (1, (28, 28)), (3, (33, 17)), (3, (64, 48))])
def test_any_size_and_channels(name, channels, size):
    options = {**SMALL, "groups": 8} if name.endswith("gn") else SMALL
    net = build(name, 7, in_channels=channels, **options).eval()
    assert net(torch.rand(2, channels, *size)).shape == (2, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 20}, "depth: expected one of 18, 34, 50, 101, got 20"),
        ({"norm": "layer"}, 'norm: expected "batch" or "group", got \'layer\''),
        ({"norm": "group", "groups": 24}, "groups: expected a divisor of width 64, got 24"),
        ({"norm": "group", "groups": 0}, "groups: expected a divisor of width 64, got 0"),
        ({"width": 0}, "width: expected a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        ResNet(**{"depth": 18, "num_classes": 2, **arguments})
