"""Normalisation that travels with the model."""

import copy
import pickle

import pytest
import torch
from torch import nn

from steep.errors import InputError
from steep.models import Normalized, build, checkpoints

MEAN, STD = (0.5, 0.25, 0.125), (0.5, 0.25, 2.0)


def test_values_by_hand():
    net = Normalized(nn.Flatten(), MEAN, STD)
    x = torch.tensor([0.5, 0.75, 1.125]).view(1, 3, 1, 1)
    assert net(x).tolist() == [[0.0, 2.0, 0.5]]


def test_equals_the_model_on_normalised_images():
    net = build("wrn-10-1", 4).eval()
    x = torch.rand(2, 3, 9, 7)
    expected = net(torch.stack([(x[:, c] - MEAN[c]) / STD[c] for c in range(3)], 1))
    torch.testing.assert_close(Normalized(net, MEAN, STD)(x), expected)


def test_mean_and_std_are_saved_buffers_and_no_parameters():
    net = Normalized(nn.Conv2d(3, 2, 1), MEAN, STD)
    assert {name for name, _ in net.named_parameters()} == {"model.weight", "model.bias"}
    assert {"mean", "std"} <= net.state_dict().keys()
    assert not net.mean.requires_grad
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin.std, net.std)


class Tuple(nn.Module):
    def forward(self, x):
        return {"logits": x.mean((2, 3)), "seen": x}


def test_output_comes_back_as_it_is():
    out = Normalized(Tuple(), MEAN, STD)(torch.rand(2, 3, 4, 4))
    assert out.keys() == {"logits", "seen"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_precision_of_the_images_is_kept(dtype):
    assert Normalized(nn.Flatten(), MEAN, STD)(torch.rand(1, 3, 2, 2, dtype=dtype)).dtype == dtype


def test_caller_s_tensor_is_not_shared():
    mean = torch.zeros(3)
    net = Normalized(nn.Flatten(), mean, torch.ones(3))
    mean += 1
    assert net.mean.abs().sum() == 0


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (2, 4, 8, 8), (3, 8, 8), (2, 3, 8)])
def test_wrong_shape(shape):
    with pytest.raises(InputError, match=r"images: expected \(B, 3, H, W\), one channel per mean, got \("):
        Normalized(nn.Flatten(), MEAN, STD)(torch.zeros(shape))


def test_integer_images():
    with pytest.raises(InputError, match=r"expected floating point in \[0, 1\], got torch.uint8; divide by 255"):
        Normalized(nn.Flatten(), MEAN, STD)(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.5], [0.5, 0.5], "std: expected as many numbers as mean has, 1, got 2"),
        ([0.5], [0.0], r"std: expected positive numbers, got \[0.0\]"),
        ([], [], "mean: expected one finite number per channel"),
        ([float("nan")], [1.0], "mean: expected one finite number per channel"),
        ([0.5], [float("inf")], "std: expected one finite number per channel"),
    ],
)
def test_bad_numbers(mean, std, message):
    with pytest.raises(InputError, match=message):
        Normalized(nn.Flatten(), mean, std)


def test_numbers_show_in_the_repr():
    assert "mean=[0.5, 0.25, 0.125], std=[0.5, 0.25, 2.0]" in repr(Normalized(nn.Flatten(), MEAN, STD))


def test_a_checkpoint_keeps_the_normalisation(tmp_path):
    source = Normalized(build("wrn-10-1", 4), MEAN, STD)
    file = checkpoints.save(source, tmp_path / "n.safetensors")
    target = Normalized(build("wrn-10-1", 4), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    checkpoints.load(target, file)
    assert torch.equal(target.mean, source.mean)
    assert torch.equal(target.std, source.std)
