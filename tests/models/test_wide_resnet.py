"""WideResNet: the published layout key by key, the published size, and a block computed by other means."""

import hashlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from steep.errors import InputError
from steep.models import build
from steep.models.wide_resnet import WideBlock, WideResNet

# sha256 over the sorted "key shape" lines of the CIFAR-10 WRN-28-10 checkpoint (155 tensors), made from the file.
CHECKPOINT_LAYOUT = "733853da8aaa8952f93cc846d83f8ae7c5665e5a202157657c90cf5cddea0dec"


def layout_rule(depth, width, classes):
    """Keys and shapes of the WideResNet-PyTorch / RobustBench layout, written down without the model."""

    def norm(name, channels):
        for leaf in ("weight", "bias", "running_mean", "running_var"):
            yield f"{name}.{leaf}", (channels,)
        yield f"{name}.num_batches_tracked", ()

    widths = [16, 16 * width, 32 * width, 64 * width]
    yield "conv1.weight", (16, 3, 3, 3)
    for stage in (1, 2, 3):
        for block in range((depth - 4) // 6):
            inside, outside = widths[stage - (block == 0)], widths[stage]
            name = f"block{stage}.layer.{block}"
            yield from norm(f"{name}.bn1", inside)
            yield f"{name}.conv1.weight", (outside, inside, 3, 3)
            yield from norm(f"{name}.bn2", outside)
            yield f"{name}.conv2.weight", (outside, outside, 3, 3)
            if inside != outside:
                yield f"{name}.convShortcut.weight", (outside, inside, 1, 1)
    yield from norm("bn1", widths[3])
    yield "fc.weight", (classes, widths[3])
    yield "fc.bias", (classes,)


def test_wrn_28_10_has_exactly_the_keys_and_shapes_of_the_checkpoint():
    with torch.device("meta"):
        net = build("wrn-28-10", 10)
    ours = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    assert ours == dict(layout_rule(28, 10, 10))
    lines = "\n".join(sorted(f"{key} {shape}" for key, shape in ours.items()))
    assert len(ours) == 155
    assert hashlib.sha256(lines.encode()).hexdigest() == CHECKPOINT_LAYOUT


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (16, 4), (22, 2), (40, 2)])
def test_other_sizes_follow_the_same_rule(depth, width):
    with torch.device("meta"):
        net = WideResNet(depth, width, 7)
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == dict(layout_rule(depth, width, 7))


# "36.5M" and "2.2M" in table 5 of Zagoruyko & Komodakis.
@pytest.mark.parametrize(("name", "millions"), [("wrn-28-10", 36.5), ("wrn-40-2", 2.2)])
def test_parameter_count_is_the_published_one(name, millions):
    with torch.device("meta"):
        count = sum(p.numel() for p in build(name, 10).parameters())
    assert round(count / 1e6, 1) == millions


def batch_norm(x, norm, training):
    """BatchNorm from its definition, in whatever precision x has."""
    mean = x.mean((0, 2, 3)) if training else norm.running_mean
    var = x.var((0, 2, 3), correction=0) if training else norm.running_var
    scale = norm.weight / (var + 1e-5).sqrt()
    return x * scale[:, None, None] + (norm.bias - mean * scale)[:, None, None]


def convolve(x, weight, stride):
    """Convolution as a matrix product over unfolded patches."""
    size = weight.shape[-1]
    columns = F.unfold(x, size, padding=size // 2, stride=stride)  # (B, C·size², L)
    height = (x.shape[2] - 1) // stride + 1
    return (weight.flatten(1) @ columns).unflatten(2, (height, -1))


def disturb(module):
    """Give every norm layer numbers that an accidental identity would not survive."""
    generator = torch.Generator().manual_seed(1)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for tensor in (layer.weight, layer.bias, layer.running_mean, layer.running_var):
                tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.2)
    return module.double()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 6, 1), (4, 6, 2), (4, 4, 2)])
def test_block_equals_an_independent_computation(inputs, outputs, stride, training):
    torch.manual_seed(0)
    block = disturb(WideBlock(inputs, outputs, stride=stride)).train(training)
    x = torch.randn(3, inputs, 7, 5, dtype=torch.float64)
    active = batch_norm(x, block.bn1, training).clamp(min=0)
    hidden = batch_norm(convolve(active, block.conv1.weight, stride), block.bn2, training).clamp(min=0)
    shortcut = x if stride == 1 and inputs == outputs else convolve(active, block.convShortcut.weight, stride)
    torch.testing.assert_close(block(x), shortcut + convolve(hidden, block.conv2.weight, 1))


def test_whole_network_equals_its_blocks_and_a_mean():
    torch.manual_seed(0)
    net = disturb(WideResNet(10, 1, 3)).eval()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    hidden = convolve(x, net.conv1.weight, 1)
    for stage in (net.block1, net.block2, net.block3):
        for block in stage.layer:
            hidden = block(hidden)
    hidden = batch_norm(hidden, net.bn1, False).clamp(min=0)
    pooled = F.avg_pool2d(hidden, 8)[:, :, 0, 0]  # what the published code does at 32×32
    torch.testing.assert_close(net(x), pooled @ net.fc.weight.T + net.fc.bias)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(32, 32), (28, 28), (33, 17), (64, 48), (1, 1)])
def test_any_size_and_channels(channels, size):
    net = build("wrn-10-1", 5, in_channels=channels).eval()
    assert net(torch.rand(2, channels, *size)).shape == (2, 5)


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    net = build("wrn-10-1", 5, dropout=0.5)
    x = torch.rand(4, 3, 8, 8)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert net.state_dict().keys() == build("wrn-10-1", 5).state_dict().keys()


def test_gradient_reaches_every_parameter_and_the_image():
    net = build("wrn-10-2", 4)
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    net(x).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": 29}, r"depth: expected 6n \+ 4 .*, got 29"),
        ({"depth": 4}, r"depth: expected 6n \+ 4 .*, got 4"),
        ({"width": 0}, "width: expected a whole number of at least 1, got 0"),
        ({"num_classes": 0}, "num_classes: expected a whole number of at least 1, got 0"),
        ({"in_channels": -1}, "in_channels: expected a whole number of at least 1, got -1"),
        ({"dropout": 1.0}, r"dropout: expected a probability in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        WideResNet(**{"depth": 10, "width": 1, "num_classes": 2, **arguments})
