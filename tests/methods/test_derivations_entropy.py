"""Tent, ETA, EATA and SAR: each step equals the paper's formulas, worked out by hand in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import steep
from reference import (
    NORM,
    Adam,
    Hand,
    Momentum,
    assert_close,
    assert_params,
    at_rest,
    cross_entropy_slope,
    energy,
    entropy,
    entropy_slope,
    make_images,
    make_net,
    only,
    softmax,
)

LR = 0.02  # large steps: a wrong moment or weight shows at once
E0_PAPER = 0.4 * math.log(1000)
STREAM = [make_images(seed) for seed in range(4)]


def finite_difference(hand: Hand, x, loss) -> dict[str, np.ndarray]:
    """Central differences of loss(logits) wrt the BatchNorm parameters."""
    h, grads = 1e-6, {}
    for name in NORM:
        grads[name] = np.empty_like(hand.params[name])
        for i in range(len(grads[name])):
            old, values = hand.params[name][i], []
            for sign in (1, -1):
                hand.params[name][i] = old + sign * h
                values.append(loss(hand.logits(x)))
            hand.params[name][i] = old
            grads[name][i] = (values[0] - values[1]) / (2 * h)
    return grads


def adam_mean(adapter) -> dict[str, np.ndarray]:
    """Adam's first moments, by the name of the parameter."""
    moments = adapter.state_dict()["state"]["optimizer"]["state"]
    return {name: moments[i]["exp_avg"].numpy() for i, name in enumerate(NORM)}


# Tent ----------------------------------------------------------------------------------------------------------------


def tent_update(hand: Hand, optimizer: Adam, x) -> float:
    """θ ← Adam(θ, ∇ mean H)."""
    z = hand.logits(x)
    grads, _ = hand.backward(x, entropy_slope(z) / len(z))
    optimizer.step(hand.params, only(grads))
    return entropy(z).mean()


def test_tent_first_step_against_finite_differences():
    """g = ∇ mean H by finite differences; Adam's first step is m = 0.1 g and θ ← θ − lr g / (|g| + 1e-8)."""
    net, x = make_net(), STREAM[0]
    adapter = steep.adapt(net, "tent", lr=LR)
    adapter(x)
    grads = finite_difference(Hand(net), x, lambda z: entropy(z).mean())
    for name, mean in adam_mean(adapter).items():
        np.testing.assert_allclose(mean / 0.1, grads[name], rtol=1e-6, atol=1e-8, err_msg=name)
        expected = Hand(net).params[name] - LR * grads[name] / (np.abs(grads[name]) + 1e-8)
        np.testing.assert_allclose(adapter.model.get_parameter(name).detach(), expected, atol=1e-6, err_msg=name)


def test_tent_follows_adam_over_four_batches_and_predicts_before():
    """m ← 0.9 m + 0.1 g, v ← 0.999 v + 0.001 g², bias-corrected; logits are those of the forward before."""
    net = make_net()
    adapter, hand, optimizer = steep.adapt(net, "tent", lr=LR), Hand(net), Adam(LR)
    for x in STREAM:
        z = hand.logits(x)
        assert_close(adapter(x), z)
        loss = tent_update(hand, optimizer, x)
        assert_params(adapter.model, hand)
        assert_close(adapter.last.loss, loss)
        assert_close(adapter.last.energy_before, energy(z).mean())
        assert adapter.last.energy_after is None
        assert adapter.last.used == len(x)
    assert_params(net, Hand(make_net()), ())  # the caller's own model has not moved


def test_tent_predicts_after_on_request():
    """With predict="after" the answer is f(x) with the updated parameters, normalised by the same batch."""
    adapter, hand, optimizer = steep.adapt(make_net(), "tent", lr=LR, predict="after"), Hand(make_net()), Adam(LR)
    for x in STREAM[:2]:
        before = hand.logits(x)
        tent_update(hand, optimizer, x)
        after = hand.logits(x)
        assert np.abs(after - before).max() > 1e-3
        assert_close(adapter(x), after)
        assert_close(adapter.last.energy_before, energy(before).mean())
        assert_close(adapter.last.energy_after, energy(after).mean())


def test_tent_lowers_the_entropy_it_descends():
    x = STREAM[0]
    adapter = steep.adapt(make_net(), "tent", lr=1e-3, predict="after")
    assert entropy(adapter(x).numpy()).mean() < entropy(Hand(make_net()).logits(x)).mean() - 1e-4


@pytest.mark.parametrize("n", [1, 5])
def test_tent_on_a_small_batch(n):
    """Below 16 images the gradient goes through w · batch + (1 − w) · source statistics, w = n/16."""
    adapter, hand, optimizer = steep.adapt(make_net(), "tent", lr=LR), Hand(make_net()), Adam(LR)
    for x in (STREAM[0][:n], STREAM[1][:n]):
        assert_close(adapter(x), hand.logits(x))
        tent_update(hand, optimizer, x)
        assert_params(adapter.model, hand)


# ETA and EATA --------------------------------------------------------------------------------------------------------


class HandEta:
    """Niu et al. 2022: filters, weights, moving average and, where there is a Fisher matrix, its penalty."""

    loss_of, slope_of = staticmethod(entropy), staticmethod(entropy_slope)  # what is minimised

    def __init__(self, net, *, e0, novelty, lr=LR, fisher=None, alpha=2000.0) -> None:
        self.hand, self.optimizer = Hand(net), Adam(lr)
        self.e0, self.novelty, self.fisher, self.alpha = e0, novelty, fisher, alpha
        self.origin = dict(self.hand.params)
        self.mean = None
        self.loss = None

    def chosen(self, z) -> np.ndarray:
        """H < E0 and, once there is an average m of predictions, |cos(p, m)| < d."""
        p = softmax(z)
        chosen = entropy(z) < self.e0
        if self.mean is not None:
            cosine = p @ self.mean / (np.linalg.norm(p, axis=1) * np.linalg.norm(self.mean))
            chosen = chosen & (np.abs(cosine) < self.novelty)
        return chosen

    def update(self, x) -> np.ndarray:
        """One step; the images that it took."""
        z = self.hand.logits(x)
        chosen = self.chosen(z)
        if not chosen.any():
            return chosen
        weight = np.where(chosen, np.exp(self.e0 - entropy(z)), 0) / chosen.sum()  # a constant: no gradient through it
        grads = only(self.hand.backward(x, weight[:, None] * self.slope_of(z))[0])
        self.loss = (weight * self.loss_of(z)).sum()
        for name in grads if self.fisher else ():
            moved = self.hand.params[name] - self.origin[name]
            self.loss += self.alpha * (self.fisher[name] * moved**2).sum()
            grads[name] = grads[name] + 2 * self.alpha * self.fisher[name] * moved
        self.optimizer.step(self.hand.params, grads)
        new = softmax(z)[chosen].mean(axis=0)
        self.mean = new if self.mean is None else 0.9 * self.mean + 0.1 * new
        return chosen


def replay(adapter, hand: HandEta, stream) -> list[int]:
    """Both on every batch, compared after each; how many images each batch gave."""
    used = []
    for x in stream:
        assert_close(adapter(x), hand.hand.logits(x))
        chosen = hand.update(x)
        used.append(int(chosen.sum()))
        assert adapter.last.used == used[-1]
        assert_params(adapter.model, hand.hand)
        if used[-1]:
            assert_close(adapter.last.loss, hand.loss)
        mean = adapter.state_dict()["state"]["mean_prediction"]
        if hand.mean is None:
            assert mean is None
        else:
            assert_close(mean, hand.mean)
    return used


def test_eta_leaves_out_entropies_above_0_4_ln_1000():
    """40 classes: ln 40 > E0 = 0.4 ln 1000 > some entropies. Weighted loss mean exp(E0 − H) H over the rest."""
    net = make_net(classes=40, sharpness=1.5)
    adapter = steep.adapt(net, "eta", lr=LR, novelty=2.0)
    used = replay(adapter, HandEta(net, e0=E0_PAPER, novelty=2.0), STREAM)
    assert all(0 < n < 20 for n in used)
    assert len(set(used)) > 1  # otherwise a sum could pass for a mean


def test_eta_filter_never_fires_on_few_classes():
    """E0 = 0.4 ln 1000 > ln 5: no image of a 5-class model is unreliable."""
    net = make_net(sharpness=0.5)
    adapter = steep.adapt(net, "eta", lr=LR)
    assert replay(adapter, HandEta(net, e0=E0_PAPER, novelty=0.05), STREAM[:1]) == [20]


def test_eta_tuned_scales_the_margin_to_the_classes_there_are():
    """E0 = 0.4 ln K and d = 0.4."""
    net = make_net(classes=5, sharpness=2.0)
    adapter = steep.adapt(net, "eta", setting="tuned", lr=LR)
    used = replay(adapter, HandEta(net, e0=0.4 * math.log(5), novelty=0.4), STREAM)
    assert 0 < used[0] < 20


@pytest.mark.parametrize("novelty", [0.05, 0.5])
def test_eta_leaves_out_what_it_has_seen(novelty):
    """|cos(p, m)| < d against the average m ← 0.9 m + 0.1 · mean p over chosen images; none on the first batch."""
    net = make_net(classes=40, sharpness=20.0)
    hyper = {} if novelty == 0.05 else {"novelty": novelty}  # 0.05 is the default
    adapter, hand = steep.adapt(net, "eta", lr=1e-3, **hyper), HandEta(net, e0=E0_PAPER, novelty=novelty, lr=1e-3)
    used = replay(adapter, hand, [STREAM[0], STREAM[2], STREAM[1], STREAM[3], STREAM[2]])
    assert used[0] == 20
    assert sum(0 < n < 20 for n in used[1:]) >= (1 if novelty == 0.05 else 2)


def test_eta_without_a_chosen_image_stands_still():
    """Nothing below E0: parameters, average and moments stay, and predict="after" answers with the same model."""
    net, x = make_net(sharpness=0.5), STREAM[0]
    adapter = steep.adapt(net, "eta", lr=LR, margin=0.1, margin_classes=5, predict="after")
    assert_close(adapter(x), Hand(net).logits(x))
    assert_params(adapter.model, Hand(net), ())
    state = adapter.state_dict()["state"]
    assert (state["mean_prediction"] < 0).all()
    assert at_rest(state)
    assert (adapter.last.used, adapter.last.loss) == (0, None)
    assert adapter.last.skipped


def test_eta_standing_still_keeps_its_memory():
    """A batch that is all redundant after the first: no step of Adam, no change of the average."""
    net = make_net()
    adapter, hand = steep.adapt(net, "eta", lr=LR, novelty=1e-6), HandEta(net, e0=E0_PAPER, novelty=1e-6)
    assert replay(adapter, hand, STREAM[:3]) == [20, 0, 0]
    assert hand.optimizer.t == 1


def hand_fisher(net, batches) -> dict[str, np.ndarray]:
    """F = mean over batches of (∇ mean CE(f(x), argmax f(x)))², under batch statistics."""
    hand, squares = Hand(net), []
    for x in batches:
        z = hand.logits(x)
        grads, _ = hand.backward(x, cross_entropy_slope(z, z.argmax(axis=1)) / len(z))
        squares.append({name: g**2 for name, g in only(grads).items()})
    return {name: np.mean([s[name] for s in squares], axis=0) for name in NORM}


SOURCE = [make_images(50, 24), make_images(51, 16), make_images(52, 20)]


@pytest.mark.parametrize("labelled", [False, True])
def test_eata_fisher_is_the_mean_squared_batch_gradient(labelled):
    """F_i = mean over source batches of (∂CE/∂θ_i)²; labels, where given, are not read."""
    net = make_net()
    source = [(x, -1) for x in SOURCE] if labelled else SOURCE
    importance = steep.adapt(net, "eata", source=source).state_dict()["state"]["importance"]
    for name, f, expected in zip(NORM, importance, hand_fisher(net, SOURCE).values(), strict=True):
        np.testing.assert_allclose(f, expected, rtol=1e-9, atol=1e-15, err_msg=name)


def test_eata_fisher_stops_at_the_number_of_images():
    """fisher_images = 42: two batches of 24 and 16 and the first 2 images of the third."""
    net = make_net()
    adapter = steep.adapt(net, "eata", source=SOURCE, fisher_images=42)
    expected = hand_fisher(net, [SOURCE[0], SOURCE[1], SOURCE[2][:2]])
    for f, e in zip(adapter.state_dict()["state"]["importance"], expected.values(), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("alpha", [2000.0, 3.0])
def test_eata_penalty_holds_the_parameters_from_the_second_step_on(alpha):
    """loss = ETA's + α Σ F (θ − θ0)², gradient 2 α F (θ − θ0): nothing at θ0, much after the first step."""
    net = make_net()
    hyper = {"lr": LR, "novelty": 2.0, **({} if alpha == 2000.0 else {"fisher_weight": alpha})}
    adapter = steep.adapt(net, "eata", source=SOURCE, **hyper)
    fisher = hand_fisher(net, SOURCE)
    hand = HandEta(net, e0=E0_PAPER, novelty=2.0, fisher=fisher, alpha=alpha)
    free = HandEta(net, e0=E0_PAPER, novelty=2.0)
    distances = []
    for x in STREAM:
        replay(adapter, hand, [x])
        free.update(x)
        distances.append(max(np.abs(free.hand.params[n] - hand.hand.params[n]).max() for n in NORM))
    assert distances[0] == 0.0
    assert distances[1] > 1e-5


def test_eata_tuned():
    """E0 = 0.4 ln K, d = 0.4, α = 1."""
    net = make_net(classes=40, sharpness=8.0)
    adapter = steep.adapt(net, "eata", setting="tuned", source=SOURCE, lr=LR)
    hand = HandEta(net, e0=0.4 * math.log(40), novelty=0.4, fisher=hand_fisher(net, SOURCE), alpha=1.0)
    used = replay(adapter, hand, [STREAM[0], STREAM[2], STREAM[1], STREAM[3]])
    assert sum(0 < n < 20 for n in used) >= 2


# SAR -----------------------------------------------------------------------------------------------------------------


class HandSar:
    """Niu et al. 2023: entropy of reliable images, gradient at θ + ρ g/‖g‖, momentum SGD from θ, recovery."""

    loss_of, slope_of = staticmethod(entropy), staticmethod(entropy_slope)  # what is minimised

    def __init__(self, net, *, e0=E0_PAPER, lr=LR, radius=0.05, floor=0.2) -> None:
        self.hand = Hand(net)
        self.e0, self.lr, self.radius, self.floor = e0, lr, radius, floor
        self.origin = dict(self.hand.params)
        self.newcomers = 0  # images reliable at the worst point only, over all batches: they do not count
        self.forget()

    def forget(self) -> None:
        self.optimizer, self.average = Momentum(self.lr), None

    def gradient(self, x, chosen) -> dict[str, np.ndarray]:
        z = self.hand.logits(x)
        return only(self.hand.backward(x, np.where(chosen[:, None], self.slope_of(z), 0) / chosen.sum())[0])

    def update(self, x) -> tuple[int, int, float | None, bool]:
        """One step; images reliable at θ, also at θ + ρ g/‖g‖, the second loss, and whether it recovered."""
        first = entropy(self.hand.logits(x)) < self.e0
        if not first.any():
            return 0, 0, None, False
        g = self.gradient(x, first)
        length = math.sqrt(sum((v**2).sum() for v in g.values()))  # over all adapted parameters jointly
        here = dict(self.hand.params)
        for name in NORM:
            self.hand.params[name] = here[name] + self.radius * g[name] / length
        h = entropy(self.hand.logits(x))
        second = first & (h < self.e0)
        self.newcomers += int((~first & (h < self.e0)).sum())
        if not second.any():
            self.hand.params = here
            return int(first.sum()), 0, None, False
        g, loss, new = self.gradient(x, second), self.loss_of(self.hand.logits(x))[second].mean(), h[second].mean()
        self.hand.params = here
        self.optimizer.step(self.hand.params, g)
        self.average = new if self.average is None else 0.9 * self.average + 0.1 * new
        recovered = bool(self.average < self.floor)
        if recovered:
            self.hand.params = dict(self.origin)
            self.forget()
        return int(first.sum()), int(second.sum()), loss, recovered


def replay_sar(adapter, hand: HandSar, stream) -> list[tuple[int, int, float | None, bool]]:
    done = []
    for x in stream:
        assert_close(adapter(x), hand.hand.logits(x))
        done.append(hand.update(x))
        _, used, loss, recovered = done[-1]
        assert_params(adapter.model, hand.hand)
        assert adapter.last.used == used
        assert (adapter.last.note is not None) == recovered
        if loss is not None:
            assert_close(adapter.last.loss, loss)
        average = adapter.state_dict()["state"]["mean_entropy"]
        if hand.average is None:
            assert average < 0
        else:
            assert_close(average, hand.average)
    return done


def test_sar_takes_the_gradient_at_the_worst_point_and_the_step_from_here():
    """g at θ; g' at θ + 0.05 g/‖g‖; v ← 0.9 v + g'; θ ← θ − lr v."""
    net = make_net()
    done = replay_sar(steep.adapt(net, "sar", lr=LR), HandSar(net), STREAM)
    assert [d[:2] for d in done] == [(20, 20)] * 4  # E0 = 0.4 ln 1000 > ln 5
    assert not any(d[3] for d in done)


def test_sar_default_rate_and_radius():
    """The comparison's setting: lr 0.01, ρ 0.05, momentum 0.9."""
    net = make_net()
    replay_sar(steep.adapt(net, "sar"), HandSar(net, lr=0.01, radius=0.05), STREAM[:3])


def test_sar_leaves_out_entropies_above_0_4_ln_1000():
    net = make_net(classes=40, sharpness=1.5)
    done = replay_sar(steep.adapt(net, "sar", lr=LR), HandSar(net), STREAM)
    assert all(0 < d[0] < 20 for d in done)


def test_sar_filters_again_at_the_worst_point():
    """Images must be reliable at θ and at θ + ρ g/‖g‖; with a large ρ the two sets differ. E0 = 0.4 ln K (tuned)."""
    net = make_net(1, sharpness=1.5)
    adapter = steep.adapt(net, "sar", setting="tuned", lr=LR, radius=0.3)
    hand = HandSar(net, e0=0.4 * math.log(5), radius=0.3)
    done = replay_sar(adapter, hand, STREAM)
    assert any(0 < second < first < 20 for first, second, *_ in done)
    assert hand.newcomers > 0


def test_sar_without_a_reliable_image_stands_still():
    """None at θ; and none left at θ + ρ g/‖g‖ (ρ so large that all become unreliable)."""
    net = make_net(sharpness=2.0)
    adapter = steep.adapt(net, "sar", margin=1e-9)
    assert replay_sar(adapter, HandSar(net, e0=1e-9 * math.log(1000)), STREAM[:2]) == [(0, 0, None, False)] * 2
    assert adapter.last.skipped
    e0 = np.sort(entropy(Hand(net).logits(STREAM[0])))[:2].mean()  # only the most certain image is reliable
    adapter = steep.adapt(net, "sar", margin=e0 / math.log(5), margin_classes=5, radius=2.0)
    first, second, *_ = replay_sar(adapter, HandSar(net, e0=e0, radius=2.0), STREAM[:1])[0]
    assert (first, second) == (1, 0)
    assert adapter.last.skipped
    assert_params(adapter.model, Hand(net), ())


def test_sar_recovers_when_the_average_falls_below_0_2():
    """A certain model (entropy < 0.2): each step goes back to the source, momentum and average forgotten."""
    net = make_net(sharpness=20.0)
    adapter = steep.adapt(net, "sar", lr=LR, predict="after")
    for x in STREAM[:2]:
        assert_close(adapter(x), Hand(net).logits(x))
        assert adapter.last.note
        assert_params(adapter.model, Hand(net), ())
        assert adapter.state_dict()["state"]["mean_entropy"] < 0
        assert at_rest(adapter.state_dict()["state"])


def test_sar_recovers_by_the_average_not_by_one_batch():
    """e ← 0.9 e + 0.1 · second loss: a threshold between two such averages is crossed in the batch it must be."""
    net, stream = make_net(), [STREAM[0], *[STREAM[1]] * 6]
    hand, averages, losses = HandSar(net, floor=-1.0), [], []
    for x in stream:
        losses.append(hand.update(x)[2])
        averages.append(hand.average)
    assert averages == sorted(averages, reverse=True)
    floor = (averages[3] + averages[4]) / 2
    assert losses[1] < floor  # one batch alone would have recovered sooner
    adapter = steep.adapt(net, "sar", lr=LR, recover_below=floor)
    done = replay_sar(adapter, HandSar(net, floor=floor), [*stream, STREAM[2], STREAM[3]])
    assert [d[3] for d in done][:5] == [False] * 4 + [True]


def assert_forgotten(adapter) -> None:
    """No momentum, no average, the source's parameters."""
    assert at_rest(adapter.state_dict()["state"])
    assert adapter.state_dict()["state"]["mean_entropy"] == -1
    assert_params(adapter.model, Hand(make_net()), ())


def test_sar_forgets_its_momentum_at_a_reset():
    """The published code keeps it: every figure of SAR after the first corruption depends on those before."""
    adapter = steep.adapt(make_net(), "sar", lr=LR)
    replay_sar(adapter, HandSar(make_net()), STREAM[:3])
    assert not at_rest(adapter.state_dict()["state"])
    adapter.reset()
    assert_forgotten(adapter)
    replay_sar(adapter, HandSar(make_net()), STREAM[2:])  # as a new one would: nothing is carried over


def test_sar_forgets_its_momentum_at_a_recovery():
    """So does what follows one: the next two steps are those of a momentum that begins at zero."""
    hand = HandSar(make_net(), floor=-1.0)
    for x in (STREAM[0], STREAM[1], STREAM[1]):
        hand.update(x)
    floor = hand.average + 1e-9  # under it with the third batch
    adapter, hand = steep.adapt(make_net(), "sar", lr=LR, recover_below=floor), HandSar(make_net(), floor=floor)
    assert not any(recovered for *_, recovered in replay_sar(adapter, hand, STREAM[:2]))
    assert not at_rest(adapter.state_dict()["state"])
    assert [recovered for *_, recovered in replay_sar(adapter, hand, STREAM[1:2])] == [True]
    assert_forgotten(adapter)
    assert not any(recovered for *_, recovered in replay_sar(adapter, hand, STREAM[:2]))
