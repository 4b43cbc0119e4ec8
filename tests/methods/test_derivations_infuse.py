"""Infuse: its loss, its pull, the statistics of its stream and whom it trusts, worked out by hand in numpy."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import steep
from reference import NORM, Adam, Hand, assert_close, assert_params, energy, make_images, make_net, only, softmax
from steep.core import trust
from steep.core.answers import for_uneven_classes
from steep.core.layers import mixing_of
from steep.core.statistics import fixed_statistics, remembered, source_statistics
from steep.core.trust import TrustState

LR, PULL, C, D = 0.02, 0.1, 0.7, 2.0
STREAM = [make_images(seed) for seed in range(4)]
HYPER = {"lr": LR, "pull": PULL, "consistency": C, "diversity": D, "full": 20}


@pytest.fixture
def batch_trusted(monkeypatch):
    """Whatever the answers are like, those by the batch's statistics are taken."""
    monkeypatch.setattr(trust, "UNEVEN", np.inf)
    monkeypatch.setattr(trust, "MOSTLY", 2.0)


def loss_by_hand(logits: np.ndarray, views: int) -> tuple[float, np.ndarray]:
    """The loss and its gradient by the logits (V · B, K)."""
    p, n = softmax(logits), len(logits)
    target = np.tile(p.reshape(views, n // views, -1).mean(axis=0), (views, 1))
    shares = p.mean(axis=0)
    loss = energy(logits).mean() - C * (target * np.log(p)).sum(axis=1).mean() + D * (shares * np.log(shares)).sum()
    slope = np.log(shares) + 1  # of Σ π ln π
    down = -p / n + C * (p - target) / n
    return loss, down + D / n * p * (slope - (p * slope).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("mirror", [True, False])
def test_infuse_goes_down_its_loss_and_back_to_the_source(batch_trusted, mirror):
    net = make_net()
    adapter, hand, optimizer = steep.adapt(net, "infuse", mirror=mirror, **HYPER), Hand(net), Adam(LR)
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


def test_small_batches_wait_until_they_are_enough(batch_trusted):
    net = make_net()
    whole, parts = steep.adapt(net, "infuse", **HYPER), steep.adapt(net, "infuse", **HYPER)
    whole(STREAM[0])
    for piece in STREAM[0].split(6):  # 6, 6, 6 and 2: the last one makes them 20
        before = {name: t.clone() for name, t in parts.model.state_dict().items()}
        parts(piece)
        moved = any(not torch.equal(t, before[name]) for name, t in parts.model.state_dict().items())
        assert moved == (len(piece) == 2)
        assert (parts.last.skipped is None) == moved
    for name, tensor in whole.model.state_dict().items():
        assert_close(parts.model.state_dict()[name], tensor.numpy())
    parts(STREAM[1][:6])
    parts(make_images(0, 15, side=8))  # images of another size begin anew
    assert [len(batch) for batch in parts._state.waiting] == [15]


def test_a_small_batch_without_an_answer_does_not_wait_with_the_others():
    class Brittle(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def forward(self, x):
            return self.net(x) * torch.where(x.mean() > 5, torch.nan, 1.0)

    adapter = steep.adapt(Brittle(), "infuse")
    adapter(STREAM[0])
    assert adapter(STREAM[1] + 10).isnan().all()
    adapter(STREAM[2])
    assert [batch.max() < 5 for batch in adapter._state.waiting] == [True, True]


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


# Whom to trust -------------------------------------------------------------------------------------------------------


def sure_of(classes: list[int], certainty: float = 6.0) -> torch.Tensor:
    """Logits of one image for each class that is named."""
    return certainty * torch.nn.functional.one_hot(torch.tensor(classes), 4).double()


class Opinions(TrustState):
    """Answers that are known in advance."""

    def __init__(self, stream, source):
        self.opinions, self.trusted, self.uneven = {"stream": stream, "source": source}, "batch", False

    def answer(self, x, by):
        return self.opinions[by]


EVEN, ONE, WRONG = [0, 1, 2, 3] * 5, [0] * 20, [3] * 20
CASES = {
    "all alike: the batch": (sure_of(EVEN), sure_of(EVEN), sure_of(EVEN), "batch", False),
    "the source is surer and agrees": (sure_of(EVEN, 3), sure_of(EVEN, 3), sure_of(EVEN), "source", False),
    "the source is less sure": (sure_of(EVEN), sure_of(EVEN), sure_of(EVEN, 3), "batch", False),
    "the source is sure and lost": (sure_of(EVEN, 3), sure_of(EVEN, 2), sure_of(WRONG), "batch", False),
    "one class, the stream shows it": (sure_of(EVEN, 2), sure_of(ONE), sure_of(ONE, 3), "stream", True),
    "one class, the source is surer still": (sure_of(EVEN, 2), sure_of(ONE, 3), sure_of(ONE), "source", True),
    "one class, the source is lost": (sure_of(EVEN, 2), sure_of(ONE, 3), sure_of(WRONG), "stream", True),
    "the stream is less sure of fewer classes": (sure_of(EVEN), sure_of(ONE, 2), sure_of(EVEN, 2), "batch", False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_look_trusts_who_is_sure_for_a_reason(case):
    batch, stream, source, trusted, uneven = CASES[case]
    state = Opinions(stream, source)
    state.look(torch.empty(20), batch)
    assert (state.trusted, state.uneven) == (trusted, uneven)


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


@pytest.fixture(scope="module")
def by_brightness():
    """A net that tells two kinds of images apart by their brightness, and a stream that shows one kind at a time."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4 * 64, 2)
    ).double()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net[0].weight[:] = 1.0
        net[1].weight[:] = 1.0
        net[1].running_mean.fill_(1.5)
        net[1].running_var.fill_(0.75)
        net[3].weight[0], net[3].weight[1] = 0.03, -0.03
    generator = torch.Generator().manual_seed(0)
    dark = torch.rand(20, 60, 3, 8, 8, generator=generator, dtype=torch.float64) * 0.2
    bright = [k // 2 % 2 for k in range(20)]
    return net.eval(), [(x + 0.8 * b, 1 - b) for x, b in zip(dark, bright, strict=True)]


def test_a_sorted_stream_is_noticed_and_rested_on(by_brightness):
    net, stream = by_brightness
    adapter, bn = steep.adapt(net, "infuse"), steep.adapt(net, "bn")
    ours, theirs = ([(a(x).argmax(1) == y).double().mean() for x, y in stream] for a in (adapter, bn))
    assert sum(theirs) / 20 < 0.7
    assert sum(ours[2:]) / 18 > 0.99
    assert adapter._state.uneven
    before, statistics = adapter.state_dict()["state"]["model"], [t.clone() for t in adapter._state.mean]
    adapter(stream[0][0])
    after = adapter.state_dict()["state"]["model"]
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items() if isinstance(tensor, torch.Tensor))
    assert not any(map(torch.equal, statistics, adapter._state.mean))
    assert adapter.last.used == 0
    assert "only statistics took it in" in adapter.last.skipped


def test_reset_resume_and_episodes_look_as_at_first(by_brightness, tmp_path):
    net, stream = by_brightness
    adapter = steep.adapt(net, "infuse")
    first = [adapter(x) for x, _ in stream[:10]]
    adapter.reset()
    assert all(torch.equal(adapter(x), answer) for (x, _), answer in zip(stream[:5], first[:5], strict=True))
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net)
    assert all(torch.equal(resumed(x), answer) for (x, _), answer in zip(stream[5:10], first[5:], strict=True))
    assert resumed._state.model.since_reset == 10
    episodic = steep.adapt(net, "infuse", episodic=True)
    assert all(torch.equal(episodic(stream[0][0]), first[0]) for _ in range(6))


def test_what_waits_is_saved_and_brought_back_whatever_waits_by_then():
    adapter = steep.adapt(make_net(), "infuse")
    adapter(STREAM[0])
    saved = adapter.state_dict()
    adapter(STREAM[1])
    expected = [len(batch) for batch in adapter._state.waiting]
    adapter.load_state_dict(saved)
    assert [len(batch) for batch in adapter._state.waiting] == [20]
    adapter(STREAM[1])
    assert [len(batch) for batch in adapter._state.waiting] == expected


@pytest.mark.parametrize("line", range(8))
def test_an_interrupt_while_the_source_is_asked_leaves_no_trace(line):
    """Ctrl-C between any two places that are put back."""
    adapter = steep.adapt(make_net(), "infuse", full=20)
    adapter(STREAM[0])
    before, origin = adapter.state_dict(), [p.clone() for p in adapter._state.origin]

    def interrupted(frame, event, arg):
        if frame.f_code.co_name in ("parameters_at", "fixed_statistics"):
            frame.f_trace = count
        return count if frame.f_code.co_name in ("parameters_at", "fixed_statistics") else None

    seen = []

    def count(frame, event, arg):
        if event == "line":
            seen.append(frame.f_lineno)
            if len(seen) == 12 + 7 * line:
                raise KeyboardInterrupt
        return count

    sys.settrace(interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            adapter(STREAM[1])
    finally:
        sys.settrace(None)
    assert all(map(torch.equal, adapter._state.origin, origin))
    assert not any(p.data_ptr() == o.data_ptr() for p, o in zip(adapter.model.parameters(), origin, strict=False))
    assert [hook.off for layer in (adapter.model.bn1, adapter.model.bn2) for hook in [mixing_of(layer)]] == [False] * 2
    saved = adapter.state_dict()["state"]["model"]
    assert all(torch.equal(saved[name], tensor) for name, tensor in before["state"]["model"].items())
