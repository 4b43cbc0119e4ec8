"""CoTTA, RoTTA and MEMO: teacher, student, memory and statistics equal the papers' formulas, by hand in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import steep
from reference import (
    NORM,
    Adam,
    Hand,
    assert_close,
    assert_params,
    cross_entropy_slope,
    entropy,
    make_images,
    make_net,
    only,
    softmax,
)
from steep.core.augment import NUMBERS, augmix, view
from test_derivations_memory import HandMemory

LR = 0.02
STREAM = [make_images(seed, 24) for seed in range(6)]
EVERY = tuple(name for name, _ in make_net().named_parameters())


def soft_cross_entropy(z: np.ndarray, q: np.ndarray) -> np.ndarray:
    """−Σ_k q_k log p_k; by z it has the slope p − q."""
    return -(q * np.log(softmax(z))).sum(axis=1)


def test_the_slope_of_a_soft_label_is_that_of_a_hard_one():
    z = np.random.default_rng(0).normal(size=(4, 5))
    labels = np.array([0, 3, 2, 2])
    assert_close(softmax(z) - np.eye(5)[labels], cross_entropy_slope(z, labels))


# CoTTA ---------------------------------------------------------------------------------------------------------------


class HandCotta:
    """Wang et al. 2022."""

    def __init__(self, net, *, threshold: float, copies: int, keep: float, restore: float, seed: int = 0) -> None:
        self.student, self.teacher, self.source = Hand(net), Hand(net), Hand(net)
        self.optimizer, self.generator = Adam(LR), torch.Generator().manual_seed(seed)
        self.threshold, self.copies, self.keep, self.restore = threshold, copies, keep, restore
        self.averaged: list[bool] = []

    def answer(self, x) -> np.ndarray:
        drawn = [view(x, self.generator, blurred=True, mirror=True) for _ in range(self.copies)]
        self.averaged.append(softmax(self.source.logits(x)).max(axis=1).mean() < self.threshold)
        if not self.averaged[-1]:
            return self.teacher.logits(x)
        return np.mean([self.teacher.logits(v) for v in drawn], axis=0)

    def update(self, x) -> tuple[np.ndarray, float]:
        answer = self.answer(x)
        z, q = self.student.logits(x), softmax(answer)
        grads, _ = self.student.backward(x, (softmax(z) - q) / len(z))
        self.optimizer.step(self.student.params, grads)
        for name, weight in self.student.params.items():
            self.teacher.params[name] = self.keep * self.teacher.params[name] + (1 - self.keep) * weight
        for name, weight in self.student.params.items():
            drawn = torch.rand(weight.shape, generator=self.generator, dtype=torch.float64).numpy()
            self.student.params[name] = np.where(drawn < self.restore, self.source.params[name], weight)
        return answer, soft_cross_entropy(z, q).mean()


@pytest.mark.parametrize("sometimes_sure", [False, True])
def test_cotta_follows_the_formulas(sometimes_sure):
    """Views are averaged for the batches that the source is less sure of than the threshold; these come first here."""
    net = make_net()
    sure = [softmax(Hand(net).logits(x)).max(axis=1).mean() for x in STREAM]
    hyper = {"threshold": np.median(sure) if sometimes_sure else 1.0, "copies": 3, "keep": 0.9, "restore": 0.1}
    adapter, hand = steep.adapt(net, "cotta", lr=LR, seed=2, **hyper), HandCotta(net, seed=2, **hyper)
    for x in [STREAM[i] for i in np.argsort(sure)]:
        logits = adapter(x)
        answer, loss = hand.update(x)
        assert_close(logits, answer, 1e-8)
        assert_close(adapter.last.loss, loss, 1e-8)
        assert_params(adapter.model, hand.teacher, EVERY, tol=1e-8)
        for ours, name in zip(adapter.state_dict()["state"]["student"], EVERY, strict=True):
            np.testing.assert_allclose(ours, hand.student.params[name], atol=1e-8, err_msg=name)
    assert hand.averaged == [True] * 3 + [not sometimes_sure] * 3
    assert np.abs(hand.teacher.params["conv1.weight"] - hand.source.params["conv1.weight"]).max() > 1e-3


def test_cotta_defaults_are_those_of_its_code_for_cifar():
    method = steep.METHODS["cotta"]()
    assert (method.lr, method.keep, method.restore, method.threshold, method.copies) == (1e-3, 0.999, 0.01, 0.92, 32)
    assert method.params == "all"


def test_cotta_restores_about_the_share_it_says():
    """All weights at once, with probability 1; none, with probability 0."""
    net, x = make_net(), STREAM[0]
    for restore in (0.0, 1.0):
        adapter = steep.adapt(net, "cotta", lr=LR, restore=restore, copies=2, threshold=1.0)
        adapter(x)
        state = adapter.state_dict()["state"]
        same = [torch.equal(a, b) for a, b in zip(state["student"], state["origin"], strict=True)]
        assert all(same) if restore else not any(same)


# RoTTA ---------------------------------------------------------------------------------------------------------------


class Robust(Hand):
    """A net whose statistics take in a share of each batch that it learns from."""

    def __init__(self, net, share: float) -> None:
        super().__init__(net, "source")
        self.share, self.learning = share, False

    def _moments(self, name, x):
        mean, var, of_batch, _ = super()._moments(name, x)
        if not self.learning:
            return mean, var, of_batch, 0.0
        w, (batch_mean, batch_var) = self.share, self.seen[name]
        return (1 - w) * mean + w * batch_mean, (1 - w) * var + w * batch_var, of_batch, w

    def follow(self) -> None:
        for name, (mean, var) in self.seen.items():
            for key, new in (("running_mean", mean), ("running_var", var)):
                old = self.running[f"{name}.{key}"]
                self.running[f"{name}.{key}"] = (1 - self.share) * old + self.share * new


class HandRotta:
    """Yuan et al. 2023: memory, robust statistics, timeliness, averaged teacher."""

    def __init__(self, net, *, memory: int, every: int, alpha: float, keep: float) -> None:
        self.student, self.teacher, self.optimizer = Robust(net, alpha), Robust(net, alpha), Adam(LR)
        self.memory, self.size, self.every, self.keep = HandMemory(memory, 5), memory, every, keep
        self.generator, self.seen, self.updates = torch.Generator().manual_seed(0), 0, 0

    def update(self, x) -> np.ndarray:
        z = self.teacher.logits(x)
        for image, row, h in zip(x, z, entropy(z), strict=True):
            self.memory.add(image, int(row.argmax()), h)
            self.seen += 1
            if self.seen % self.every == 0:
                self.loss = self.learn()
        return z

    def learn(self) -> float:
        images, ages = self.memory.content()
        images, ages = torch.stack(images), np.array(ages)
        self.student.learning = self.teacher.learning = True
        views = view(images, self.generator, blurred=True, mirror=True)
        q = softmax(self.teacher.logits(images))
        self.teacher.follow()
        z = self.student.logits(views)
        weight = np.exp(-ages) / (1 + np.exp(-ages)) / len(ages)
        grads, _ = self.student.backward(views, weight[:, None] * (softmax(z) - q))
        self.student.follow()
        self.student.learning = self.teacher.learning = False
        self.optimizer.step(self.student.params, only(grads))
        for name in NORM:
            mixed = self.keep * self.teacher.params[name] + (1 - self.keep) * self.student.params[name]
            self.teacher.params[name] = mixed
        self.updates, self.used = self.updates + 1, len(ages)
        return (weight * soft_cross_entropy(z, q)).sum()


@pytest.mark.parametrize(("memory", "every"), [(8, 10), (16, 24), (6, 30)])
def test_rotta_follows_the_formulas(memory, every):
    """Updates in the middle of a batch, several in one, at its end, and batches without any."""
    net = make_net(sharpness=2.0)
    hyper = {"memory": memory, "every": every, "alpha": 0.2, "keep": 0.9}
    adapter, hand = steep.adapt(net, "rotta", lr=LR, **hyper), HandRotta(net, **hyper)
    for x in STREAM:
        before = hand.updates
        logits = adapter(x)
        assert_close(logits, hand.update(x))
        if hand.updates > before:
            assert_close(adapter.last.loss, hand.loss)
            assert adapter.last.used == hand.used
            assert adapter.last.skipped is None
        else:
            assert adapter.last.skipped
        for name in NORM:
            np.testing.assert_allclose(
                adapter.model.get_parameter(name).detach(), hand.teacher.params[name], atol=1e-10
            )
        for name, expected in hand.teacher.running.items():
            np.testing.assert_allclose(adapter.model.get_buffer(name), expected, atol=1e-10, err_msg=name)
        state = adapter.state_dict()["state"]
        for ours, expected in zip(state["student"], (hand.student.params[n] for n in NORM), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-10)
        for ours, expected in zip(state["statistics"], hand.student.running.values(), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-10)
    assert hand.updates == len(STREAM) * 24 // every
    assert np.abs(hand.teacher.params["bn1.weight"] - make_net(sharpness=2.0).bn1.weight.detach().numpy()).max() > 1e-3


def test_rotta_defaults_are_those_of_its_code():
    method = steep.METHODS["rotta"]()
    assert (method.lr, method.memory, method.every, method.alpha, method.keep) == (1e-3, 64, 64, 0.05, 0.999)


def test_what_rotta_has_adapted_is_an_ordinary_model():
    """The teacher has fixed statistics: a copy of it answers as the adapter does, without images to measure them on."""
    adapter = steep.adapt(make_net(), "rotta", every=24, lr=LR)
    for x in STREAM[:3]:
        adapter(x)
    merged = adapter.merged()
    assert torch.equal(adapter(STREAM[3]), merged(STREAM[3]))


# MEMO ----------------------------------------------------------------------------------------------------------------


class Mixed(Hand):
    """Statistics of the views, unbiased, mixed into the source's by a fixed share, constants to a gradient."""

    def __init__(self, net, share: float) -> None:
        super().__init__(net, "source")
        self.share = share

    def _moments(self, name, x):
        mean, var, of_batch, _ = super()._moments(name, x)
        n, w, (batch_mean, batch_var) = x[:, 0].size, self.share, self.seen[name]
        return (1 - w) * mean + w * batch_mean, (1 - w) * var + w * batch_var * n / (n - 1), of_batch, 0.0


def marginal_entropy(z: np.ndarray) -> float:
    p = softmax(z).mean(axis=0)
    return -(p * np.log(p)).sum()


def marginal_slope(z: np.ndarray) -> np.ndarray:
    """∂H/∂p̄_k = −ln p̄_k − 1, a share 1/V of it to each view, through its softmax."""
    p = softmax(z)
    g = (-np.log(p.mean(axis=0)) - 1) / len(z)
    return p * (g - (g * p).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(("updates", "alpha"), [(1, 0.0), (3, 0.0), (1, 1 / 17), (2, 0.5)])
def test_memo_adapts_to_each_image_and_forgets_it(updates, alpha):
    net, lr = make_net(sharpness=1.0), 0.05
    adapter = steep.adapt(net, "memo", lr=lr, copies=4, updates=updates, alpha=alpha, seed=5)
    generator = torch.Generator().manual_seed(5)
    for x in STREAM[:3]:
        x = x[:9]
        views = augmix(x, torch.rand(9, updates * 4, NUMBERS, generator=generator, dtype=torch.float64), mirror=True)
        logits, losses = adapter(x), []
        for image, drawn, answer in zip(x, views, logits, strict=True):
            hand = Mixed(net, alpha)
            for some in drawn.split(4):
                z = hand.logits(some)
                grads, _ = hand.backward(some, marginal_slope(z))
                hand.params = {name: p - lr * grads[name] for name, p in hand.params.items()}
            losses.append(marginal_entropy(z))
            assert_close(answer, hand.logits(image[None])[0])
            assert np.abs(answer.numpy() - Mixed(net, alpha).logits(image[None])[0]).max() > 1e-3
        assert_close(adapter.last.loss, np.mean(losses))
        assert_params(adapter.model, Hand(net), ())


def test_memo_slope_is_a_central_difference():
    z, h = np.random.default_rng(0).normal(size=(4, 5)), 1e-6
    for index in np.ndindex(z.shape):
        step = np.zeros_like(z)
        step[index] = h
        numeric = (marginal_entropy(z + step) - marginal_entropy(z - step)) / (2 * h)
        assert marginal_slope(z)[index] == pytest.approx(numeric, abs=1e-8)


def test_memo_mixes_the_views_into_the_statistics():
    """A share 1/17 of unbiased statistics: of the views, and of the image for its answer. The rate is next to none."""
    net, x = make_net(), STREAM[0][:2]
    answer = steep.adapt(net, "memo", lr=1e-12, copies=4)(x)
    for image, row in zip(x, answer, strict=True):
        assert_close(row, Mixed(net, 1 / 17).logits(image[None])[0], 1e-8)
    assert steep.METHODS["memo"]() == steep.METHODS["memo"](lr=0.005, copies=32, updates=1, params="all")
