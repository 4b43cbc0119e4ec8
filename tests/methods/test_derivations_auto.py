"""Auto: what it makes of few images, many classes, mirrors and models, worked out by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import steep
from reference import NORM, Adam, Hand, assert_close, assert_params, energy, make_images, make_net, only, softmax
from steep.core.answers import variety_of
from steep.errors import NothingToAdaptError
from steep.methods import auto
from test_derivations_infuse import HYPER, LR, PULL, loss_by_hand


@pytest.mark.parametrize(("batch", "lacking"), [(1, False), (240, True)])
def test_few_images_need_fewer_classes(batch, lacking):
    net = make_net()
    adapter = steep.adapt(net, "auto", guard="skip", **HYPER)
    hand, optimizer = Hand(net), Adam(LR)
    source = {name: hand.params[name].copy() for name in NORM}
    for seed in range(2):
        x = make_images(seed, batch)
        views = np.concatenate([x.numpy(), x.numpy()[..., ::-1]])
        logits = hand.logits(views)
        shares = softmax(logits).mean(axis=0)
        assert (-(shares * np.log(shares)).sum() < variety_of(batch, len(shares))) == lacking
        answers = adapter(x)
        assert_close(answers.softmax(1), softmax(logits).reshape(2, batch, -1).mean(axis=0))
        assert_close(steep.energy(answers), energy(logits).reshape(2, batch).mean(axis=0))
        _, gradient = loss_by_hand(logits, 2)
        optimizer.step(hand.params, only(hand.backward(views, gradient)[0]))
        for name in NORM:
            hand.params[name] += PULL * (source[name] - hand.params[name])
        assert_params(adapter.model, hand)


class Sides(nn.Module):
    """Tells where an image is bright: left or right, which a mirror changes, or above or below, which it does not."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.norm, self.axis = nn.BatchNorm2d(1), axis

    def forward(self, x):
        first, second = (half.mean(dim=(1, 2, 3)) for half in self.norm(x).chunk(2, dim=self.axis))
        return 20 * torch.stack([first - second, second - first], dim=1)


def halves(axis: int, n: int = 60) -> torch.Tensor:
    x = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for k, image in enumerate(x):
        image.chunk(2, dim=axis - 1)[k % 2].add_(2)
    return x


@pytest.mark.parametrize(("axis", "mirrored"), [(3, False), (2, True)])
def test_a_mirror_is_used_where_it_leaves_sure_answers_as_they_are(axis, mirrored):
    adapter = steep.adapt(Sides(axis).eval(), "auto", guard="skip")
    notes = []
    for _ in range(5):
        assert torch.equal(adapter(halves(axis)).argmax(1), torch.arange(60) % 2)
        notes.append(adapter.last.note)
    kind = "images and mirrors" if mirrored else "images alone"
    written = [note for note in notes if note]
    assert len(written) == 1
    assert written[0].startswith(f"learns from {kind}: a mirror leaves ")
    forwards = []
    adapter.model.register_forward_hook(lambda net, args, out: forwards.append(len(args[0])))
    answers = adapter(halves(axis))
    assert forwards == [60 * (1 + mirrored)]
    assert torch.equal(answers.argmax(1), torch.arange(60) % 2)


def test_without_a_sure_answer_mirrors_are_used():
    net = make_net()
    net.fc.weight.data *= 1e-3
    adapter = steep.adapt(net, "auto", guard="skip")
    adapter(make_images(0))
    assert adapter.last.note == "learns from images and mirrors: a mirror leaves 0 of 0 sure answers as they are"
    for seed in range(1, 4):
        adapter(make_images(seed))
        assert adapter.last.note is None


def test_it_looks_at_mirrors_again_when_the_stream_has_changed(monkeypatch):
    monkeypatch.setattr(auto, "EVERY", 8)
    adapter, views = steep.adapt(Sides(3).eval(), "auto", guard="skip"), []
    adapter.model.register_forward_hook(lambda net, args, out: views.append(len(args[0]) // 60))
    for k in range(48):  # what it has seen is forgotten by and by
        x = halves(3)
        adapter(x if k < 8 else x + x.flip(3) + 0.01 * x)  # now both halves are bright, and hardly an answer is sure
    assert views[6:9] == [1] * 3  # after a trial forward, one image that tells the number of classes, and four looks
    assert views[-1] == 2


def test_a_layer_that_is_not_there_is_told():
    with pytest.raises(NothingToAdaptError):
        steep.adapt(make_net(), "auto", params="layr9")


def test_a_model_without_layers_to_adapt_is_left_as_it_is():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)).eval()
    x = torch.rand(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for guard in ("recover", "skip"):
        adapter = steep.adapt(net, "auto", guard=guard)
        assert torch.allclose(adapter(x), net(x), atol=1e-6)
        assert adapter.last.skipped == "no layer to adapt: the source model answers"


class Prism(nn.Module):
    """Five channels, five classes: the brightest channel names the class, by the statistics it was trained with."""

    def __init__(self, clean: torch.Tensor) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(5)
        self.norm.running_mean, self.norm.running_var = clean.mean(dim=(0, 2, 3)), clean.var(dim=(0, 2, 3))

    def forward(self, x):
        return 16 * self.norm(x).mean(dim=(2, 3))


def colours(seed: int, *, without: int | None = None, shift: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([k for k in range(5) if k != without]).repeat(20)
    x = 0.3 * torch.eye(5)[labels][:, :, None, None] + torch.rand(len(labels), 5, 4, 4, generator=generator)
    return x + shift * torch.linspace(-1, 1, 5).view(1, 5, 1, 1), labels


def test_it_changes_its_mind_with_the_stream_and_says_so(caplog):
    """Where nothing has shifted the source model counts for more: a missing class would mislead batch statistics."""
    model = Prism(torch.cat([colours(seed)[0] for seed in range(90, 100)])).eval()
    adapter, plain = steep.adapt(model, "auto", guard="recover"), steep.adapt(model, "auto", guard="skip")
    right, unguarded, answered = [], [], []
    for k in range(40):
        x, labels = colours(k, shift=1.0) if 8 <= k < 24 else colours(k, without=k % 5)
        answer = adapter(x)
        right.append(float((answer.argmax(1) == labels).float().mean()))
        unguarded.append(float((plain(x).argmax(1) == labels).float().mean()))
        answered.append(adapter.last.answered_by)
    assert {*answered[:8], *answered[-7:]} == {"the source model and the method together"}
    assert answered[8:24] == [None] * 16
    assert np.mean(right[:8]) > np.mean(unguarded[:8]) + 0.01
    assert np.mean(right[8:24]) > 0.95
    x, labels = colours(8, shift=1.0)
    assert float((model(x).argmax(1) == labels).float().mean()) < 0.5
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert lines == [
        "auto: from here on it is answered by the source model and the method together",
        "auto: from here on it is answered by the adapted model",
    ]
