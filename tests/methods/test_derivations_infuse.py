"""Infuse: its loss and its pull; statistics of a stream and shares of classes, worked out by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import steep
from reference import NORM, Adam, Hand, assert_close, assert_params, energy, make_images, make_net, only, softmax
from steep.core.answers import for_uneven_classes, variety_of
from steep.core.statistics import fixed_statistics, remembered, source_statistics

LR, PULL, C, D = 0.02, 0.1, 0.7, 2.0
STREAM = [make_images(seed) for seed in range(4)]
HYPER = {"lr": LR, "pull": PULL, "consistency": C, "diversity": D}


def loss_by_hand(logits: np.ndarray, views: int) -> tuple[float, np.ndarray]:
    """The loss and its gradient by the logits (V · B, K)."""
    p, n, classes = softmax(logits), len(logits), logits.shape[1]
    target = np.tile(p.reshape(views, n // views, -1).mean(axis=0), (views, 1))
    shares = p.mean(axis=0)
    variety, most = -(shares * np.log(shares)).sum(), -np.log(1 / classes + (1 - 1 / classes) / (n / views))
    loss = energy(logits).mean() - C * (target * np.log(p)).sum(axis=1).mean() - D * min(variety, most)
    slope = np.log(shares) + 1  # of Σ π ln π
    down = -p / n + C * (p - target) / n
    lacks = D if variety < most else 0.0
    return loss, down + lacks / n * p * (slope - (p * slope).sum(axis=1, keepdims=True))


def test_few_images_of_even_classes_show_that_much_variety():
    """Drawn evenly, B images of K classes have on average the sum of squared shares that belongs to that entropy."""
    rng = np.random.default_rng(0)
    for images, classes in ((1, 5), (20, 10), (50, 1000), (400, 7)):
        shares = rng.multinomial(images, np.full(classes, 1 / classes), size=4000) / images
        assert variety_of(images, classes) == pytest.approx(-np.log((shares**2).sum(axis=1).mean()), abs=0.01)


@pytest.mark.parametrize("mirror", [True, False])
def test_infuse_goes_down_its_loss_and_back_to_the_source(mirror):
    net = make_net()
    adapter = steep.adapt(net, "infuse", guard="skip", mirror=mirror, **HYPER)
    hand, optimizer = Hand(net), Adam(LR)
    source = {name: hand.params[name].copy() for name in NORM}
    for x in STREAM:
        views = np.concatenate([x.numpy(), x.numpy()[..., ::-1]]) if mirror else x.numpy()
        logits = hand.logits(views)
        answers = adapter(x)
        probabilities = softmax(logits).reshape(1 + mirror, len(x), -1).mean(axis=0)
        assert_close(answers.softmax(1), probabilities)
        assert_close(steep.energy(answers), energy(logits).reshape(1 + mirror, len(x)).mean(axis=0))
        loss, gradient = loss_by_hand(logits, 1 + mirror)
        assert adapter.last.loss == pytest.approx(loss)
        optimizer.step(hand.params, only(hand.backward(views, gradient)[0]))
        for name in NORM:
            hand.params[name] = (1 - PULL) * hand.params[name] + PULL * source[name]
        assert_params(adapter.model, hand)


def test_the_streams_statistics_are_those_of_all_images_together():
    net = make_net()
    adapter = steep.adapt(net, "bn")  # which normalises by the batch, so that statistics can be seen
    model = adapter._state.model
    mean, var = source_statistics(model)
    inputs = []
    model.net.bn1.register_forward_hook(lambda layer, args, out: inputs.append(args[0].detach().numpy()))
    for k, x in enumerate(STREAM, start=1):
        with remembered(model, mean, var, torch.tensor(1 / k)), torch.no_grad():
            model(x)
    everything = np.concatenate(inputs)
    assert_close(mean[0], everything.mean(axis=(0, 2, 3)), 1e-6)
    assert_close(var[0], everything.var(axis=(0, 2, 3)), 1e-6)
    with fixed_statistics(model, mean, var), torch.no_grad():
        by_stream = model(STREAM[0])
    twin = make_net()
    for layer, m, v in zip((twin.bn1, twin.bn2), mean, var, strict=True):
        layer.running_mean.copy_(m)
        layer.running_var.copy_(v)
    assert_close(by_stream, twin(STREAM[0]).detach().numpy(), 1e-6)
    assert_close(model(STREAM[0]).detach(), Hand(net).logits(STREAM[0]))  # afterwards as before


def test_uneven_classes_are_corrected_as_bayes_would():
    """Two Gaussians whose shares are 9 : 1 in the batch and were 1 : 1 in training: the exact posterior is known."""
    rng = np.random.default_rng(0)
    labels = rng.random(4000) < 0.1
    x = rng.normal(np.where(labels, 1.0, -1.0))
    logits = torch.from_numpy(np.stack([-((x + 1) ** 2), -((x - 1) ** 2)], axis=1) / 2)
    corrected = for_uneven_classes(logits, rounds=200)
    exact = 1 / (1 + np.exp(-2 * x) * 9)  # p(1 | x) ∝ 0.1 · exp(−(x − 1)² / 2)
    assert np.abs(corrected.softmax(1)[:, 1].numpy() - exact).max() < 0.05
    assert (corrected.argmax(1).numpy() == labels).mean() > (logits.argmax(1).numpy() == labels).mean() + 0.04
    assert_close(steep.energy(corrected), steep.energy(logits).numpy())


class Wide(torch.nn.Module):
    """Five colours, and as many classes as one likes."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(5)
        self.norm.running_mean.fill_(0.4)
        self.norm.running_var.fill_(0.2)
        self.head = torch.nn.Linear(5, classes)

    def forward(self, x):
        return self.head(self.norm(x).mean(dim=(2, 3)))


@pytest.mark.parametrize("method", ["infuse", "auto"])
@pytest.mark.parametrize(("classes", "mixes"), [(200, False), (300, True)])
def test_where_no_batch_shows_all_classes_the_source_statistics_count_too(method, classes, mixes):
    """Each of n images weighs one, the source statistics as many as there are classes; mirror images count too."""
    torch.manual_seed(0)
    model, x = Wide(classes).eval(), torch.rand(60, 5, 4, 4)
    answer = steep.adapt(model, method, guard="off", precision="float32")(x).double()
    views = [x.double(), x.double().flip(-1)]
    both = torch.cat(views)
    weight = 120 / (120 + classes) if mixes else 1.0
    spread = both.transpose(0, 1).flatten(1).var(dim=1, correction=int(mixes))
    mean = weight * both.mean(dim=(0, 2, 3)) + (1 - weight) * 0.4
    var = weight * spread + (1 - weight) * 0.2
    wide = model.double()

    def forward(v):
        z = (v - mean.view(1, 5, 1, 1)) / (var.view(1, 5, 1, 1) + 1e-5).sqrt()
        return wide.head(z.mean(dim=(2, 3))).softmax(1)

    assert torch.allclose(answer.softmax(1), (forward(views[0]) + forward(views[1])) / 2, atol=1e-5)


@pytest.mark.parametrize("size", [60, 20])
@pytest.mark.parametrize("guard", ["skip", "recover"])
def test_many_classes_are_known_again_after_a_reset_and_from_a_file(size, guard, tmp_path):
    torch.manual_seed(0)
    model, x = Wide(300).eval(), torch.rand(480, 5, 4, 4)
    straight = steep.adapt(model, "infuse", guard=guard)
    answers = [straight(part) for part in x.split(size)]
    straight.reset()
    assert all(torch.equal(straight(part), answer) for part, answer in zip(x.split(size), answers, strict=True))
    stopped = steep.adapt(model, "infuse", guard=guard)
    half = len(answers) // 2
    for part in x.split(size)[:half]:
        stopped(part)
    stopped.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", model)
    assert all(torch.equal(resumed(part), a) for part, a in zip(x.split(size)[half:], answers[half:], strict=True))


@pytest.mark.parametrize("episodic", [False, True])
def test_a_peek_knows_the_many_classes_too(episodic):
    torch.manual_seed(0)
    model, x = Wide(300).eval(), torch.rand(60, 5, 4, 4)
    adapter = steep.adapt(model, "infuse", guard="skip", episodic=episodic)
    assert torch.allclose(adapter.peek(x), adapter(x), atol=1e-6)  # it answers before its step


class Counting(Wide):
    """Counts its forwards, and takes no single image."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x).squeeze()


def test_counting_the_classes_leaves_no_trace():
    counts = {}
    for method in ("tent", "infuse"):
        adapter = steep.adapt(Counting(300).eval(), method, guard="skip")
        adapter(torch.rand(60, 5, 4, 4, generator=torch.Generator().manual_seed(0)))
        counts[method] = float(adapter.model.calls)
    assert counts["infuse"] == counts["tent"]
