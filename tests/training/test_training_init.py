"""Fine-tuning from given weights: a new head where the classes are others, at the model's own size, resumable."""

from __future__ import annotations

import json

import pytest
import torch

from steep import models
from steep.cli import main
from steep.data import load, to_device
from steep.errors import CheckpointError, InputError
from steep.models import checkpoints
from steep.predicting import load_model
from steep.training import TrainingSpec, checkpoint_path, plan, train

FACTORY = """
from steep import models

def make():
    model = models.build("wrn-10-1", 7, in_channels=1)
    model.default_cfg = {"mean": (0.3,), "std": (0.5,), "input_size": (1, 12, 12)}
    return model
"""
SHORT = {"epochs": 2, "limit": 200, "checkpoint_minutes": 0, "warmup_epochs": 0}


@pytest.fixture
def start(tmp_path):
    """A factory without pretrained weights, and weights of seven classes for it."""
    (tmp_path / "net.py").write_text(FACTORY)
    torch.manual_seed(5)
    model = models.build("wrn-10-1", 7, in_channels=1)
    checkpoints.save(model, tmp_path / "seven.safetensors")
    return {"model": f"{tmp_path}/net.py:make", "init": str(tmp_path / "seven.safetensors")}, model


def test_training_starts_from_the_weights_with_a_new_head(start, tmp_path):
    how, model = start
    spec = TrainingSpec.from_recipe("train-digits", {**SHORT, **how, "lr": 1e-9, "weight_decay": 0.0, "epochs": 1})
    trained = train(spec, tmp_path / "out.safetensors")
    stored = checkpoints.read(trained.weights)
    assert stored.tensors["model.fc.weight"].shape == (10, 64)
    assert torch.allclose(stored.tensors["model.conv1.weight"].float(), model.conv1.weight, atol=1e-3)
    assert stored.tensors["mean"].flatten().tolist() == pytest.approx([0.3], abs=1e-3)
    assert trained.row["image_shape"] == [12, 12, 1]
    assert str(tmp_path) not in json.dumps(trained.row) + json.dumps(dict(stored.metadata))
    assert trained.row["spec"]["init"] == "seven.safetensors"
    assert plan(spec).image_shape == (1, 12, 12)
    # what comes out is an ordinary model of that factory: the bench and predict load it with its ten classes
    loaded = load_model(how["model"], weights=trained.weights)
    test = load("digits", size=12, limit=200)
    with torch.no_grad():
        right = loaded.model(to_device(test.images)).argmax(1) == torch.from_numpy(test.labels)
    assert right.float().mean().item() == pytest.approx(trained.row["accuracy"])
    assert loaded.size == 12


def test_fine_tuning_learns_more_in_one_epoch_than_starting_anew(tmp_path):
    first = train(TrainingSpec.from_recipe("train-digits", {"epochs": 3}), tmp_path / "first.safetensors")
    short = {"epochs": 1, "warmup_epochs": 0, "limit": 300, "lr": 0.02}
    anew = train(TrainingSpec.from_recipe("train-digits", short), tmp_path / "anew.safetensors")
    spec = TrainingSpec.from_recipe("train-digits", {**short, "init": str(first.weights)})
    assert train(spec, tmp_path / "tuned.safetensors").row["accuracy"] > anew.row["accuracy"] + 0.2


def test_stopped_it_goes_on_to_the_same_weights_and_from_no_others(start, tmp_path, monkeypatch):
    how, _ = start
    spec = TrainingSpec.from_recipe("train-digits", {**SHORT, **how})
    whole = train(spec, tmp_path / "whole.safetensors")
    seen = []

    def stop(now):
        seen.append(now.done)
        if now.epoch == 1:
            raise KeyboardInterrupt

    out = tmp_path / "stopped.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(spec, out, progress=stop)
    assert seen
    assert checkpoint_path(out).exists()
    checkpoints.save(models.build("wrn-10-1", 7, in_channels=1), tmp_path / "other" / "seven.safetensors")
    other = TrainingSpec.from_recipe("train-digits", {**SHORT, **how, "init": f"{tmp_path}/other/seven.safetensors"})
    with pytest.raises(CheckpointError, match="start_sha256"):
        train(other, out)
    again = train(spec, out)
    one, two = (checkpoints.read(trained.weights).tensors for trained in (whole, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_slips_are_answered(start, tmp_path, capsys):
    how, _ = start
    command = ["train", "train-digits", "--out", str(tmp_path / "n.safetensors"), "--device", "cpu"]
    assert main([*command, "--init", "nowhere.pt"]) == 2
    assert "nowhere.pt: expected a file of weights" in capsys.readouterr().err
    assert main([*command, "--model", "timm:nothing", "--init", "pretrained"]) == 2
    assert "timm" in capsys.readouterr().err
    assert main([*command, "--model", how["model"], "--dry-run"]) == 0
    assert "12 × 12" in capsys.readouterr().out
    with pytest.raises(InputError, match="none for a model that is loaded"):
        TrainingSpec.from_recipe("train-digits", {**how, "model_options.dropout": 0.1})
