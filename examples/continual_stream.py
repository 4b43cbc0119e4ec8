"""A continual stream: shifts follow each other without a word, the adapter goes on; stop, save and resume on the way.

python examples/continual_stream.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

import steep
from steep.data import Shift, load, stream
from steep.training import TrainingSpec, train

KINDS = ("contrast", "pixelate", "shot_noise", "fog")


def shifts(limit: int | None = None) -> list[Shift]:
    """Each is loaded when its turn comes."""
    return [
        Shift(kind, 4, lambda kind=kind: load("digits-c", corruption=kind, severity=4, limit=limit)) for kind in KINDS
    ]


def run(adapter: steep.Adapter, limit: int | None = None) -> dict[str, float]:
    """Accuracy in each segment; nobody tells the adapter where one ends."""
    accuracies = {}
    for segment in stream("continual", shifts(limit), batch_size=100):
        if segment.reset:  # true before the first segment only: that is what makes the stream continual
            adapter.reset()
        answers = [(adapter(x), y) for x, y in segment.batches]
        logits, labels = (torch.cat(each) for each in zip(*answers, strict=True))
        accuracies[segment.name] = steep.metrics.accuracy(logits, labels)
    return accuracies


def main(epochs: int = 5, limit: int | None = None) -> dict[str, dict[str, float]]:
    """Compare three methods on the stream, then show that a restart changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "digits.safetensors"
        train(TrainingSpec.from_recipe("train-digits", {"epochs": epochs}), weights)
        model = steep.models.build("wrn-10-1", 10, in_channels=1)
        steep.models.checkpoints.load(model, weights)

        accuracies = {}
        for method in ("source", "bn", "tent"):
            adapter = steep.adapt(model.eval(), method, guard="recover")
            accuracies[method] = run(adapter, limit)
            print(f"{method:8}" + "".join(f"{kind} {value:.1%}   " for kind, value in accuracies[method].items()))

        adapter.save(Path(folder) / "tent.safetensors")  # e.g. before a deployment
        resumed = steep.resume(Path(folder) / "tent.safetensors", model)
        x = torch.rand(100, 1, 8, 8)
        assert torch.equal(adapter(x), resumed(x))
        print("saved, resumed, and the next answers are the same bit for bit")
    return accuracies


if __name__ == "__main__":
    main()
