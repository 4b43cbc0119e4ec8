"""Your own model: train a small net on clean digits, meet noisy ones, adapt.

    python examples/own_model.py

No download: the digits come with scikit-learn. About five seconds on one core.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import steep
from steep.data import batches, load


def net() -> nn.Module:
    """An ordinary classifier: nothing in it knows of steep."""
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10)),
    )


def train(model: nn.Module, epochs: int) -> None:
    """The plainest loop there is."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        for x, y in batches(load("digits", "train"), 64, shuffle=epoch):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
    model.eval()


def accuracy(model: nn.Module, method: str, corruption: str | None, **hyper: object) -> float:
    """Answer the whole test set with a freshly adapted model."""
    test = load("digits") if corruption is None else load("digits-c", corruption=corruption, severity=4)
    adapter = steep.adapt(model, method, **hyper)
    answers = [(adapter(x), y) for x, y in batches(test, 100)]
    logits, labels = (torch.cat(each) for each in zip(*answers, strict=True))
    return steep.metrics.accuracy(logits, labels)


def main(epochs: int = 8) -> dict[str, dict[str, float]]:
    """Print accuracies: rows are methods, columns are what the pictures went through."""
    torch.manual_seed(0)
    model = net()
    train(model, epochs)
    seen = {"clean": None, "contrast": "contrast", "pixelate": "pixelate"}
    print(f"{'':8}" + "".join(f"{name:>12}" for name in seen))
    accuracies = {}
    for method, hyper in {"source": {}, "bn": {}, "tent": {}, "tea": {"sgld_steps": 3, "sgld_rate": 0.7}}.items():
        accuracies[method] = {name: accuracy(model, method, corruption, **hyper) for name, corruption in seen.items()}
        print(f"{method:8}" + "".join(f"{value:12.1%}" for value in accuracies[method].values()))
    return accuracies


if __name__ == "__main__":
    main()
