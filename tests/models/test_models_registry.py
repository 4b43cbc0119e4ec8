"""Models by name."""

import pytest
import torch

from steep.errors import InputError, UnknownNameError
from steep.models import MODELS, build
from steep.models.wide_resnet import WideResNet


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_listed_model_builds_and_says_what_it_is(name):
    with torch.device("meta"):
        net = build(name, 10, in_channels=1)
        assert net(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    assert MODELS[name].summary
    assert MODELS[name].paper


def test_the_papers_models_are_listed():
    assert {"wrn-28-10", "wrn-40-2", "resnet-18-bn", "resnet-18-gn", "resnet-50-gn"} <= MODELS.keys()


def test_any_wide_resnet_builds():
    net = build("wrn-22-3", 4)
    assert isinstance(net, WideResNet)
    assert len(net.block1.layer) == 3
    assert net.fc.in_features == 3 * 64


def test_listing_cannot_be_changed():
    with pytest.raises(TypeError):
        MODELS["mine"] = MODELS["wrn-28-10"]  # type: ignore[index]


@pytest.mark.parametrize("name", ["wrn-28", "wrn-28-10-3", "WRN-28-10", "resnet-18", "", "wrn--10-1"])
def test_unknown_name(name):
    with pytest.raises(UnknownNameError, match=r"unknown model .*Known: .*wrn-28-10.*wrn-DEPTH-WIDTH"):
        build(name, 10)


def test_near_match_is_offered():
    with pytest.raises(UnknownNameError, match="did you mean 'resnet-50-gn'"):
        build("resnet50-gn", 10)


def test_impossible_depth_says_which_are_possible():
    with pytest.raises(InputError, match=r"depth: expected 6n \+ 4"):
        build("wrn-29-10", 10)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("wrn-10-1", {"drop": 0.1}, "unknown option of wrn-10-1 'drop': did you mean 'dropout'"),
        ("resnet-18-gn", {"norm": "batch"}, "unknown option of resnet-18-gn 'norm'"),
        ("resnet-18-bn", {"groups": 8}, "unknown option of resnet-18-bn 'groups'"),
    ],
)
def test_unknown_option(name, option, message):
    with pytest.raises(UnknownNameError, match=message):
        build(name, 10, **option)


@pytest.mark.parametrize("value", [0, -1, 2.0, True, None])
def test_bad_numbers(value):
    with pytest.raises(InputError, match="num_classes: expected a whole number of at least 1, got"):
        build("wrn-10-1", value)
    with pytest.raises(InputError, match="in_channels: expected a whole number of at least 1, got"):
        build("wrn-10-1", 10, in_channels=value)


def test_same_seed_same_weights():
    torch.manual_seed(3)
    first = build("wrn-10-1", 10).state_dict()
    torch.manual_seed(3)
    second = build("wrn-10-1", 10).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
