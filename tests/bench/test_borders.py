"""The benchmark that asks whether a model misses the borders it was trained on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import steep
from benchmarks import borders
from steep.data import ImageSet
from steep.training import draw

PAD, BATCH, SEED = 3, 4, 5


class Probe(nn.Module):
    """Notes the mean it normalises by, whenever it answers; drops everything if it is told to train."""

    means: list[torch.Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm2d(3), nn.Dropout(1.0)
        self.norm.running_mean.fill_(7.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.norm.training:
            Probe.means.append(self.norm.running_mean.clone())
        return self.drop(self.norm(x).flatten(1)[:, :2])


def pictures(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("statistics", "mode"), [("source", None), ("batch", None), ("zeros", "constant"), ("reflect", "reflect")]
)
def test_whole_pictures_are_normalised_by_the_statistics_named(statistics, mode):
    images = pictures(6)
    about = {"name": "noise", "split": "test", "origin": "made", "digest": ""}
    data = ImageSet(images=images, labels=np.zeros(6, np.int64), classes=("a", "b"), **about)
    model, Probe.means = Probe(), []
    borders.right(model, data, statistics, argparse.Namespace(batch=BATCH, pad=PAD, seed=SEED, device="cpu"))
    draws = draw(6, seed=SEED, epoch=0, pad=PAD, flip=True, device=torch.device("cpu"))
    for start, got in zip((0, 4), Probe.means, strict=True):
        shown = images[start : start + BATCH]
        if mode is not None:
            around = np.pad(shown, ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0)), mode=mode)
            tops, lefts = draws.top[start:].tolist(), draws.left[start:].tolist()
            shown = np.stack([p[t : t + 8, s : s + 8] for p, t, s in zip(around, tops, lefts, strict=False)])
        expected = np.full(3, 7.0) if statistics == "source" else (shown / 255).mean(axis=(0, 1, 2))
        np.testing.assert_allclose(got.numpy(), expected, atol=1e-6)
    assert torch.all(model.norm.running_mean == 7.0)  # the model asked about keeps its own


def test_answers_are_counted_and_every_shift_and_statistics_has_its_row(tmp_path, monkeypatch):
    model = steep.models.build("wrn-10-1", 2, in_channels=3)
    steep.models.checkpoints.save(model, tmp_path / "w.safetensors")
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        answers = model.eval()(torch.from_numpy(pictures(20)).permute(0, 3, 1, 2) / 255).argmax(dim=1).numpy()
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "images.npy", pictures(20))
    np.save(tmp_path / "arrays" / "labels.npy", np.where(np.arange(20) < 15, answers, 1 - answers))
    words = f"--data arrays-c --model wrn-10-1 --root {tmp_path}/arrays --weights {tmp_path}/w.safetensors --batch 10"
    monkeypatch.setattr(sys, "argv", ["borders", *words.split(), "--shifts", "clean", "fog", "--out", f"{tmp_path}/r"])
    borders.main()
    rows = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert [(row["shift"], row["severity"], row["statistics"]) for row in rows] == [
        (shift, severity, statistics)
        for shift, severity in (("clean", 0), ("fog", 5))
        for statistics in ("source", "batch", "zeros", "reflect")
    ]
    assert (rows[0]["accuracy"], rows[0]["n"]) == (0.75, 20)
