"""TEA and its sampler: Langevin steps, contrastive divergence and the replay buffer, worked out by hand in numpy."""

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
    energy,
    make_images,
    make_net,
    only,
    softmax,
)
from steep.core.langevin import langevin

LR = 0.02
STREAM = [make_images(seed) for seed in range(3)]


def with_chains(adapter, chains):
    """Fill the replay buffer, through the adapter's own door for saved states."""
    saved = adapter.state_dict()
    saved["state"]["buffer"]["images"] = torch.as_tensor(chains).clone()
    adapter.load_state_dict(saved)
    return adapter


def chains_of(adapter) -> np.ndarray:
    return adapter.state_dict()["state"]["buffer"]["images"].numpy().copy()


def energy_gradient(hand: Hand, x: np.ndarray) -> np.ndarray:
    """∂ Σ E(x) / ∂x, E = −ln Σ exp f, so ∂E/∂f = −softmax f; the batch is normalised by itself."""
    return hand.backward(x, -softmax(hand.logits(x)))[1]


def walk(hand: Hand, x: np.ndarray, steps: int, rate: float) -> np.ndarray:
    """x ← x − rate ∂E/∂x, without noise."""
    for _ in range(steps):
        x = x - rate * energy_gradient(hand, x)
    return x


def contrast(hand: Hand, optimizer: Adam, x, samples: np.ndarray) -> float:
    """θ ← Adam(θ, ∇ [mean E(x) − mean E(x̃)]): x̃ is held fixed, and x and x̃ are normalised each by its own batch."""
    real, fake = hand.logits(x), hand.logits(samples)
    up, _ = hand.backward(x, -softmax(real) / len(real))
    down, _ = hand.backward(samples, -softmax(fake) / len(fake))
    optimizer.step(hand.params, {name: up[name] - down[name] for name in only(up)})
    return energy(real).mean() - energy(fake).mean()


@pytest.mark.parametrize("chains", [20, 6], ids=["as many chains as images", "few chains"])
def test_tea_replayed_by_hand(chains):
    """Three batches: T noiseless Langevin steps from the buffer, contrastive divergence, Adam, then the prediction."""
    net = make_net()
    adapter = steep.adapt(
        net, "tea", lr=LR, sgld_steps=4, sgld_rate=0.5, sgld_noise=0.0, buffer_size=chains, chains=chains, restart=0.0
    )
    start = make_images(7, chains, low=-1.0).numpy()
    with_chains(adapter, start)
    hand, optimizer, samples = Hand(net), Adam(LR), start
    for x in STREAM:
        before = hand.logits(x)
        samples = walk(hand, samples, 4, 0.5)  # the whole buffer walks on from where it stopped
        fake = energy(hand.logits(samples)).mean()
        loss = contrast(hand, optimizer, x, samples)
        after = hand.logits(x)
        assert np.abs(after - before).max() > 1e-3
        assert_close(adapter(x), after, 1e-8)
        assert_params(adapter.model, hand, tol=1e-8)
        assert_close(chains_of(adapter), samples, 1e-8)
        assert_close(adapter.last.loss, loss, 1e-8)
        assert_close(adapter.last.energy_samples, fake, 1e-8)
        assert_close(adapter.last.energy_before, energy(before).mean(), 1e-8)
        assert_close(adapter.last.energy_after, energy(after).mean(), 1e-8)
    assert np.abs(samples - start).max() > 0.05
    assert_params(net, Hand(make_net()), ())


def test_energy_replayed_by_hand():
    """Three batches of θ ← Adam(θ, ∇ mean E(x)), ∂E/∂f = −softmax f; the answer comes after the update."""
    net = make_net()
    adapter = steep.adapt(net, "energy", lr=LR)
    hand, optimizer = Hand(net), Adam(LR)
    for x in STREAM:
        before = hand.logits(x)
        slopes, _ = hand.backward(x, -softmax(before) / len(before))
        optimizer.step(hand.params, only(slopes))
        after = hand.logits(x)
        assert energy(after).mean() < energy(before).mean()
        assert_close(adapter(x), after, 1e-8)
        assert_params(adapter.model, hand, tol=1e-8)
        assert_close(adapter.last.loss, energy(before).mean(), 1e-8)
        assert_close(adapter.last.energy_after, energy(after).mean(), 1e-8)
        assert adapter.last.energy_samples is None


def test_energy_is_the_first_term_of_tea():
    """Before the first update, its loss is TEA's with the energy of the samples added back."""
    net, x = make_net(), STREAM[0]
    both = [steep.adapt(net, name, lr=LR, predict="before") for name in ("energy", "tea")]
    losses = []
    for adapter in both:
        adapter(x)
        losses.append(adapter.last)
    assert_close(losses[0].loss, losses[1].loss + losses[1].energy_samples, 1e-8)


def test_tea_gradient_against_finite_differences():
    """∇_θ [mean E(x) − mean E(x̃)] by central differences with x̃ fixed, and ∂E/∂x likewise, for one step."""
    net, x, h = make_net(), STREAM[0], 1e-6
    start = make_images(7, 20, low=-1.0).numpy()
    hyper = {"sgld_steps": 1, "sgld_noise": 0.0, "buffer_size": 20, "restart": 0.0}
    adapter = with_chains(steep.adapt(net, "tea", **hyper), start)
    adapter(x)
    samples = chains_of(adapter)

    hand = Hand(net)

    def difference(array: np.ndarray, index, value) -> float:
        old, values = array[index], []
        for sign in (1, -1):
            array[index] = old + sign * h
            values.append(value())
        array[index] = old
        return (values[0] - values[1]) / (2 * h)

    for index in list(np.ndindex(start.shape))[::101]:  # default rate 0.1
        slope = difference(start, index, lambda: energy(hand.logits(start)).sum())
        np.testing.assert_allclose(samples[index], start[index] - 0.1 * slope, rtol=0, atol=1e-7)

    def loss() -> float:
        return energy(hand.logits(x)).mean() - energy(hand.logits(samples)).mean()

    moments = adapter.state_dict()["state"]["optimizer"]["state"]
    for i, name in enumerate(NORM):
        p = hand.params[name]
        numeric = [difference(p, j, loss) for j in range(len(p))]
        np.testing.assert_allclose(moments[i]["exp_avg"].numpy() / 0.1, numeric, rtol=1e-6, atol=1e-8, err_msg=name)


def test_tea_writes_back_the_chains_it_took_and_no_others():
    """6 of 15 chains walk, and go back to the places they came from; the update uses those 6."""
    net, x = make_net(), STREAM[0]
    hyper = {"sgld_steps": 3, "sgld_rate": 0.5, "sgld_noise": 0.0, "restart": 0.0, "buffer_size": 15, "chains": 6}
    start = make_images(8, 15, low=-1.0).numpy()
    adapter = with_chains(steep.adapt(net, "tea", lr=LR, **hyper), start)
    hand, optimizer, taken = Hand(net), Adam(LR), []
    for _ in range(3):
        adapter(x)
        now = chains_of(adapter)
        moved = np.abs(now - start).max(axis=(1, 2, 3)) > 0
        assert moved.sum() == 6
        assert_close(now[moved], walk(hand, start[moved], 3, 0.5), 1e-8)
        contrast(hand, optimizer, x, now[moved])
        assert_params(adapter.model, hand, tol=1e-8)
        taken.append(tuple(np.flatnonzero(moved)))
        start = now
    assert len(set(taken)) > 1


def test_tea_lowers_the_energy_of_the_images_against_that_of_the_samples():
    """The sign of contrastive divergence: mean E(x) − mean E(x̃) falls."""
    net, x = make_net(), STREAM[0]
    hyper = {"sgld_steps": 2, "sgld_noise": 0.0, "buffer_size": 20, "restart": 0.0}
    adapter = steep.adapt(net, "tea", **hyper)
    adapter(x)
    samples, after, before = chains_of(adapter), Hand(adapter.model), Hand(net)
    gap = [energy(h.logits(x)).mean() - energy(h.logits(samples)).mean() for h in (before, after)]
    assert gap[1] < gap[0] - 1e-3


def test_tea_predicts_before_on_request():
    net = make_net()
    adapter = steep.adapt(net, "tea", predict="before", sgld_steps=1, buffer_size=20)
    assert_close(adapter(STREAM[0]), Hand(net).logits(STREAM[0]))
    assert adapter.last.energy_after is None


@pytest.mark.parametrize("steps", [1, 4])
def test_tea_noise_has_the_mean_and_spread_it_is_given(steps):
    """x_T − x_0 of chains that feel no energy (rate 0) is N(0, T σ²), independent from chain to chain; default 0.01."""
    n = 2000
    start = make_images(9, n, low=-1.0).numpy()
    adapter = steep.adapt(make_net(), "tea", sgld_steps=steps, sgld_rate=0.0, buffer_size=n, chains=n, restart=0.0)
    with_chains(adapter, start)(STREAM[0])
    increments = (chains_of(adapter) - start) / (0.01 * np.sqrt(steps))
    count = increments.size
    assert abs(increments.mean()) < 5 / np.sqrt(count)
    assert abs(increments.var() - 1) < 5 * np.sqrt(2 / count)
    assert abs((increments**4).mean() - 3) < 5 * np.sqrt(96 / count)  # Gaussian, not uniform
    assert abs((increments[1:] * increments[:-1]).mean()) < 5 / np.sqrt(count)


def test_tea_drift_and_noise_add():
    """One default step: x ← x − 0.1 ∂E/∂x + 0.01 ε. What is left when the drift by hand is taken away is the noise."""
    net, n = make_net(), 400
    start = make_images(9, n, low=-1.0).numpy()
    adapter = steep.adapt(net, "tea", sgld_steps=1, buffer_size=n, chains=n, restart=0.0)
    with_chains(adapter, start)(STREAM[0])
    rest = (chains_of(adapter) - walk(Hand(net), start, 1, 0.1)) / 0.01
    assert abs(rest.mean()) < 5 / np.sqrt(rest.size)
    assert abs(rest.var() - 1) < 5 * np.sqrt(2 / rest.size)


def test_tea_chains_begin_uniform_and_begin_anew():
    """p0 = U(−1, 1) by default; a share `restart` of the chains drawn is replaced by fresh ones."""
    n, x = 2000, STREAM[0]
    still = {"sgld_steps": 0, "buffer_size": n, "chains": n}
    adapter = steep.adapt(make_net(), "tea", restart=0.0, **still)
    adapter(x)
    first = chains_of(adapter)
    assert -1 <= first.min() < -0.999 < 0.999 < first.max() <= 1
    assert abs(first.mean()) < 5 * np.sqrt(1 / 3 / first.size)
    assert abs(first.var() - 1 / 3) < 5 * np.sqrt(4 / 45 / first.size)
    adapter(x)
    np.testing.assert_array_equal(chains_of(adapter), first)

    for restart, hyper in ((0.05, {}), (0.5, {"restart": 0.5}), (1.0, {"restart": 1.0})):  # 0.05 is the default
        adapter = with_chains(steep.adapt(make_net(), "tea", start=(2.0, 3.0), **still, **hyper), first)
        adapter(x)
        now = chains_of(adapter)
        fresh = (now != first).all(axis=(1, 2, 3))
        np.testing.assert_array_equal(now[~fresh], first[~fresh])
        assert abs(fresh.mean() - restart) <= 5 * np.sqrt(restart * (1 - restart) / n)
        assert now[fresh].min() >= 2
        assert now[fresh].max() <= 3


# The sampler ---------------------------------------------------------------------------------------------------------


def test_langevin_on_a_quadratic_energy():
    """E = Σ k (x − μ)²/2 gives x ← x − r k (x − μ) + s ε: mean μ, variance s²/(1 − (1 − r k)²), correlation 1 − r k."""
    n, rate, noise = 20_000, 0.2, 0.3
    k = torch.tensor([0.5, 1.0, 4.0, 8.0], dtype=torch.float64)
    mu = torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)

    def bowl(x: torch.Tensor) -> torch.Tensor:
        return (k * (x - mu) ** 2 / 2).sum(dim=1)

    start = torch.zeros(n, 4, dtype=torch.float64)
    x = langevin(bowl, start, steps=150, rate=rate, noise=noise, generator=generator)
    later = langevin(bowl, x, steps=1, rate=rate, noise=noise, generator=generator)
    assert torch.equal(start, torch.zeros_like(start))
    keep = 1 - rate * k
    variance = noise**2 / (1 - keep**2)
    assert ((x.mean(dim=0) - mu).abs() < 5 * (variance / n).sqrt()).all()
    assert ((x.var(dim=0) - variance).abs() < 5 * variance * (2 / n) ** 0.5).all()
    correlation = ((x - mu) * (later - mu)).mean(dim=0) / variance
    assert ((correlation - keep).abs() < 5 * ((1 + keep**2) / n).sqrt()).all()


def test_langevin_on_its_way():
    """After t steps from x0 the mean is μ + (1 − r k)^t (x0 − μ), exactly so without noise."""
    x = langevin(lambda x: (3 * (x - 1) ** 2 / 2).sum(1), torch.full((2, 1), 5.0).double(), steps=7, rate=0.1, noise=0)
    assert_close(x, np.full((2, 1), 1 + 0.7**7 * 4), 1e-12)


def test_langevin_clips_each_chain_and_clamps():
    """A gradient longer than grad_clip is shortened to it, a shorter one stays; values end within clamp."""
    start = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)  # ∂(x²/2)/∂x = x: lengths 5, ½, 0
    options = {"steps": 1, "rate": 1.0, "noise": 0.0}
    x = langevin(lambda x: (x**2 / 2).sum(1), start, grad_clip=1.0, **options)
    assert_close(x, np.array([[3 - 0.6, 4 - 0.8], [0.0, 0.0], [0.0, 0.0]]), 1e-12)
    x = langevin(lambda x: -(x**2 / 2).sum(1), start, clamp=(-1.0, 0.7), **options)
    assert_close(x, np.array([[0.7, 0.7], [0.6, 0.7], [0.0, 0.0]]), 1e-12)


@pytest.mark.parametrize("labelled", [False, True])
def test_sample_walks_the_model_in_eval_mode(labelled):
    """E(x) = −ln Σ exp f(x), or E(x, y) = −f(x)[y]; running statistics, and the model as it was."""
    net, start = make_net(), make_images(3, 6, low=-1.0)
    labels = torch.tensor([0, 1, 2, 3, 4, 0]) if labelled else None
    hand, x = Hand(net, "source"), start.numpy()
    for _ in range(3):
        slope = -np.eye(5)[labels] if labelled else -softmax(hand.logits(x))
        x = x - 0.5 * hand.backward(x, slope)[1]
    net.train()
    samples = steep.sample(net, start.shape, start=start, labels=labels, steps=3, rate=0.5, noise=0.0)
    assert_close(samples, x, 1e-10)
    assert net.bn1.training
    assert_params(net, hand, ())
