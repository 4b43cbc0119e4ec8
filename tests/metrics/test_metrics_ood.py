"""AUROC and FPR95, from their definitions by counting pairs."""

from __future__ import annotations

import pytest
import torch

import steep
from steep.errors import InputError
from steep.metrics import detection


def by_counting(known: list[float], unknown: list[float]) -> tuple[float, float]:
    pairs = [(u > k) + 0.5 * (u == k) for k in known for u in unknown]
    limits = [limit for limit in {*known, *unknown} if sum(k <= limit for k in known) / len(known) >= 0.95]
    passing = [sum(u <= limit for u in unknown) / len(unknown) for limit in limits]
    return sum(pairs) / len(pairs), min(passing)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounding", [None, 0])
def test_as_counted(seed, rounding):
    generator = torch.Generator().manual_seed(seed)
    known = torch.randn(60, generator=generator, dtype=torch.float64)
    unknown = torch.randn(35, generator=generator, dtype=torch.float64) + 1
    if rounding is not None:  # with ties
        known, unknown = known.round(), unknown.round()
    result = detection(known, unknown)
    auroc, fpr95 = by_counting(known.tolist(), unknown.tolist())
    assert result.auroc == pytest.approx(auroc, abs=1e-6)
    assert result.fpr95 == pytest.approx(fpr95, abs=1e-6)
    assert (result.known, result.unknown) == (60, 35)


def test_exactly_95_percent_counts():
    known = torch.arange(20.0)
    assert detection(known, torch.tensor([18.5, 30.0])).fpr95 == 0
    assert detection(known, torch.tensor([17.5, 30.0])).fpr95 == 0.5


def test_large_energies_are_still_told_apart():
    """A sigmoid, which torchmetrics would apply, makes all of these the same number."""
    assert detection(torch.tensor([-90.0, -80.0]), torch.tensor([-70.0, -60.0])).auroc == 1
    assert detection(torch.tensor([-70.0, -60.0]), torch.tensor([-90.0, -80.0])).auroc == 0
    assert detection(torch.zeros(5), torch.zeros(4)).auroc == 0.5


def test_bad_scores():
    good = torch.zeros(3)
    for bad, message in (
        (torch.zeros(3, 2), "one for each image"),
        (torch.zeros(0), "one for each image"),
        (torch.tensor([1]), "one for each image"),
        (torch.tensor([float("nan")]), "finite"),
        ([1.0, 2.0], "a torch.Tensor, got list"),
        (torch.zeros(3).numpy(), "a torch.Tensor, got ndarray"),
    ):
        with pytest.raises(InputError, match=f"known: .*{message}"):
            detection(bad, good)
        with pytest.raises(InputError, match=f"unknown: .*{message}"):
            detection(good, bad)


def test_energy_tells_digits_from_noise_after_adapting_too():
    """A small trained model, its own digits and uniform noise, with fixed statistics as docs/ood.md has it."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = torch.from_numpy(data.images).float()[:, None] / 16
    torch.manual_seed(0)
    model = steep.models.build("wrn-10-1", 10, in_channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    y = torch.from_numpy(data.target)
    for epoch in range(2):
        for at in torch.randperm(1200, generator=torch.Generator().manual_seed(epoch)).split(64):
            loss = torch.nn.functional.cross_entropy(model(x[at]), y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    known, noise = x[1200:1500], torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(9))
    adapter = steep.adapt(model.eval(), "tent")
    for batch in known.split(100):
        adapter(batch)
    with torch.no_grad():
        for net in (model, adapter.merged(known[:100])):
            assert detection(steep.energy(net(known)), steep.energy(net(noise))).auroc > 0.8
