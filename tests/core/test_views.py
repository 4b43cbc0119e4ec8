"""Answers averaged over views of an image: what is averaged, when, and by which model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import steep
from nets import images, net
from steep.core.views import SHIFTS, VIEWS, mean_answer, shift
from steep.errors import CheckpointError, InputError

X = images(20, seed=0)


def by_hand(x: torch.Tensor, name: str) -> list[torch.Tensor]:
    """All views of the images, pixel by pixel."""
    mirror = torch.stack([x[..., x.shape[-1] - 1 - column] for column in range(x.shape[-1])], dim=-1)
    views = [x, mirror]
    if name == "shifts":
        size = x.shape[-1]
        for step in (-1, 1):  # what stands at p comes from p + step, or from the border
            take = [min(max(p + step, 0), size - 1) for p in range(size)]
            views += [view[..., take, :][..., take] for view in (x, mirror)]
    return views


@pytest.mark.parametrize("name", VIEWS)
def test_the_views_are_what_they_are_called(name):
    expected, views = by_hand(X, name), [X, *VIEWS[name](X)]
    assert len(views) == len(expected) == {"mirror": 2, "shifts": 6}[name]
    for one in expected:
        assert sum(torch.equal(one, other) for other in views) == 1


def test_a_shift_of_volumes_moves_height_and_width_alone():
    volume = torch.rand(2, 3, 4, 6, 6)
    moved = shift(volume, *SHIFTS[0])
    assert moved.shape == volume.shape
    assert torch.equal(moved[..., 1:, 1:], volume[..., :-1, :-1])


def test_the_mean_has_the_mean_probabilities_and_the_mean_energy():
    answers = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    both = mean_answer(list(answers))
    torch.testing.assert_close(both.softmax(1), sum(a.softmax(1) for a in answers) / 3)
    torch.testing.assert_close(steep.energy(both), sum(steep.energy(a) for a in answers) / 3)


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("method", ["source", "bn", "tent", "tea"])
@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_answered_by_the_same_model(method, name, predict):
    """Before the update by the model before it, after the update by the one after it."""
    options = {"predict": predict} | ({"sgld_steps": 1} if method == "tea" else {})
    model = net("batch")
    adapter, plain = steep.adapt(model, method, views=name, **options), steep.adapt(model, method, **options)
    for seed in range(3):
        x = images(20, seed=seed)
        before = copy.deepcopy(plain.model)
        plain(x)
        with torch.no_grad():
            answers = [(before if predict == "before" else plain.model)(view) for view in by_hand(x, name)]
        expected = torch.stack(answers).softmax(2).mean(0)
        torch.testing.assert_close(adapter(x).softmax(1), expected)


def test_views_change_the_answer_and_not_the_adaptation():
    plain, mirrored = (steep.adapt(net("batch"), "tent", views=views) for views in (None, "mirror"))
    assert not torch.equal(plain(X), mirrored(X))
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, mirrored.model.state_dict()[name]), name


def test_with_several_steps_the_views_are_of_the_last_one():
    twice, mirrored = (steep.adapt(net("batch"), "tent", steps=2, views=views) for views in (None, "mirror"))
    once = steep.adapt(net("batch"), "tent")
    once(X)  # the model before the second step
    with torch.no_grad():
        expected = (twice(X).softmax(1) + once.model(X.flip(-1)).softmax(1)) / 2
    torch.testing.assert_close(mirrored(X).softmax(1), expected)


def test_a_model_that_sees_no_difference_answers_as_without_views():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.head = nn.BatchNorm2d(3), nn.Linear(3, 4)

        def forward(self, x):
            return self.head(self.norm(x).mean(dim=(2, 3)))

    model = Mean()
    plain, mirrored = steep.adapt(model, "tent"), steep.adapt(model, "tent", views="mirror")
    torch.testing.assert_close(mirrored(X), plain(X))


def test_a_wrong_view_is_refused_by_name():
    with pytest.raises(InputError, match="views"):
        steep.adapt(net("batch"), "tent", views="upside-down")


def test_a_state_saved_before_there_were_views_still_resumes():
    adapter = steep.adapt(net("batch"), "tent")
    adapter(X)
    saved = adapter.state_dict()
    del saved["options"]["views"]
    again = steep.adapt(net("batch"), "tent")
    again.load_state_dict(saved)
    assert torch.equal(again(X), adapter(X))
    with pytest.raises(CheckpointError, match="views"):
        steep.adapt(net("batch"), "tent", views="mirror").load_state_dict(saved)
