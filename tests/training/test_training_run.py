"""Whole runs on the bundled digits: how good, how exactly resumed, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from steep import models, sealed
from steep.cli import main
from steep.data import load, to_device
from steep.errors import CheckpointError, DataError, InputError
from steep.models import checkpoints
from steep.training import TrainingSpec, checkpoint_path, train
from steep.training.run import KIND, Run

# Every step is put on disk: a kill may come at any of them.
SHORT = {"epochs": 3, "limit": 200, "checkpoint_minutes": 0, "warmup_epochs": 1, "model_options.dropout": 0.2}


def short(**more):
    return TrainingSpec.from_recipe("train-digits", {**SHORT, **more})


def same(one: Path, other: Path) -> bool:
    a, b = checkpoints.read(one).tensors, checkpoints.read(other).tensors
    return a.keys() == b.keys() and all(a[k].numpy().tobytes() == b[k].numpy().tobytes() for k in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A short run that nobody stopped."""
    return train(short(), tmp_path_factory.mktemp("whole") / "net.safetensors").weights


def test_digits_reach_97_percent_in_seconds(tmp_path):
    started = time.monotonic()
    assert main(["train", "train-digits", "--out", str(tmp_path / "digits.safetensors")]) == 0
    assert time.monotonic() - started < 60
    # measured again with nothing of the training code
    model = models.build("wrn-10-1", 10, in_channels=1)
    metadata = checkpoints.load(model, tmp_path / "digits.safetensors")
    test = load("digits")
    with torch.no_grad():
        right = model.eval()(to_device(test.images)).argmax(1) == torch.from_numpy(test.labels)
    assert right.float().mean() >= 0.97
    assert float(metadata["accuracy"]) == pytest.approx(right.float().mean().item())
    row = json.loads((tmp_path / "digits.json").read_text())
    assert row["data"] == metadata["data"] == "digits"
    assert row["data_digest"] == metadata["data_digest"] == load("digits", "train").digest
    assert (metadata["architecture"], metadata["recipe"], metadata["seed"]) == ("wrn-10-1", "train-digits", "0")
    assert {"commit", "versions", "seconds", "device", "epochs", "classes"} <= row.keys()
    assert [entry["epoch"] for entry in row["history"]] == list(range(1, 13))
    assert row["spec"]["lr"] == 0.1
    assert str(tmp_path) not in json.dumps(row) + json.dumps(dict(metadata))


def test_killed_it_goes_on_by_the_same_command_and_ends_with_the_same_weights(whole, tmp_path, capsys):
    """SIGKILL while the seventh checkpoint is written, inside the second epoch (three steps each); as `bench` does."""
    out = tmp_path / "net.safetensors"
    overrides = [f"--set={key}={value}" for key, value in SHORT.items()]
    command = ["train", "train-digits", "--device", "cpu", *overrides, "--out", str(out)]
    script = f"""
import os, signal, torch
torch.set_num_threads(1)
from steep.cli import main
written, replace = [], os.replace
def killing(source, target):
    written.append(target)
    if len(written) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = killing
main({command!r})
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not out.exists()
    steps = []
    restore = Run.restore

    def restored(self, path):
        restore(self, path)
        steps.append(self.done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "restore", restored)
        assert main(command) == 0
    assert steps[0] > 3
    assert same(whole, out)
    assert [row["epoch"] for row in json.loads(out.with_suffix(".json").read_text())["history"]] == [1, 2, 3]
    assert not checkpoint_path(out).exists()
    weights = out.read_bytes()
    assert main(command) == 0  # everything is done
    assert out.read_bytes() == weights
    assert main([*command, "--no-resume"]) == 2
    assert "--no-resume" in capsys.readouterr().err


@pytest.mark.parametrize("at", [1, 4, 6])
def test_ctrl_c_keeps_the_run(whole, tmp_path, monkeypatch, at):
    out = tmp_path / "net.safetensors"
    save, calls = Run.save, []

    def interrupted(self, path):
        calls.append(self.done)
        if len(calls) == at:
            signal.raise_signal(signal.SIGINT)  # comes while a checkpoint is written
        save(self, path)

    monkeypatch.setattr(Run, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(short(), out)
    assert checkpoint_path(out).exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.undo()
    train(short(), out)
    assert same(whole, out)


def test_watching_changes_nothing(whole, tmp_path):
    out = tmp_path / "net.safetensors"
    torch.manual_seed(99)  # the caller's stream is neither used nor moved
    before = torch.get_rng_state()
    train(short(evaluate_every=1, checkpoint_minutes=5), out)
    assert torch.equal(before, torch.get_rng_state())
    assert same(whole, out)


def test_another_seed_is_another_model(whole, tmp_path):
    train(short(seed=1), tmp_path / "net.safetensors")
    assert not same(whole, tmp_path / "net.safetensors")


def test_half_precision_is_measured_as_stored(tmp_path):
    trained = train(short(epochs=6, store="fp16"), tmp_path / "net.safetensors")
    stored = checkpoints.read(trained.weights)
    assert {t.dtype for t in stored.tensors.values() if t.is_floating_point()} == {torch.float16}
    model = models.build("wrn-10-1", 10, in_channels=1)
    checkpoints.load(model, trained.weights)
    test = load("digits", limit=200)
    with torch.no_grad():
        right = model.eval()(to_device(test.images)).argmax(1) == torch.from_numpy(test.labels)
    assert trained.row["accuracy"] == pytest.approx(right.float().mean().item())


def test_the_first_steps_are_plain_sgd(tmp_path):
    """One epoch of the loop against the update written out by hand."""
    spec = short(epochs=1, warmup_epochs=0, limit=128, **{"model_options.dropout": 0.0})
    out = train(spec, tmp_path / "net.safetensors").weights
    from torch.nn import functional as F

    from steep.training import crops, draw
    from steep.training.augment import padded

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        model = models.build("wrn-10-1", 10, in_channels=1, dropout=0.0).train()
    data = load("digits", "train", limit=128)
    images, labels = torch.from_numpy(data.images.copy()), torch.from_numpy(data.labels)
    draws = draw(128, seed=spec.seed, epoch=0, pad=1, flip=False, device=torch.device("cpu"))
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for step, rate in enumerate((0.1, 0.05)):  # half a cosine in two steps
        batch = draws.batch(64 * step, 64 * step + 64)
        x = crops(padded(images, 1, "zeros"), batch, 1).permute(0, 3, 1, 2).float() / 255
        loss = F.cross_entropy(model(x), labels[batch.order])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, v, g in zip(model.parameters(), velocity, gradients, strict=True):
                g = g + 5e-4 * p
                v.mul_(0.9).add_(g)
                p.sub_(rate * (g + 0.9 * v))
    stored = checkpoints.read(out).tensors
    for name, value in model.state_dict().items():
        torch.testing.assert_close(stored[name], value, rtol=1e-3, atol=2e-5)


def stopped(folder: Path) -> Path:
    """A run's checkpoint, as if it had been stopped after two steps."""
    out = folder / "net.safetensors"

    def stop(progress):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        train(short(limit=128), out, progress=stop)
    return checkpoint_path(out)


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path):
    file = stopped(tmp_path)
    out, content = tmp_path / "net.safetensors", file.read_bytes()
    assert b"pickle" not in content
    spec = short(limit=128)
    for torn in (content[: len(content) // 2], content[:20], b"", content[:-1]):
        file.write_bytes(torn)
        with pytest.raises(CheckpointError, match="not a file of a training run, or cut short"):
            train(spec, out)
    changed = bytearray(content)
    changed[-5] ^= 1
    file.write_bytes(changed)
    with pytest.raises(CheckpointError, match="its checksum does not match"):
        train(spec, out)
    checkpoints.save(models.build("wrn-10-1", 10), file)
    with pytest.raises(CheckpointError, match="expected a training run, got a safetensors file of something else"):
        train(spec, out)
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"another recipe or data \(lr = 0.1, now 0.3\)"):
        train(dataclasses.replace(spec, lr=0.3), out)
    with pytest.raises(CheckpointError, match=r"model = .*wrn-10-1.*, now .*wrn-16-1"):
        train(dataclasses.replace(spec, model="wrn-16-1"), out)
    with pytest.raises(CheckpointError, match="--no-resume"):
        train(spec, out, resume=False)
    assert file.read_bytes() == content
    train(dataclasses.replace(spec, store="fp16"), out)  # how it is kept may change


@pytest.mark.parametrize(("border", "mode"), [("zeros", "constant"), ("reflect", "reflect")])
def test_pictures_to_train_on_have_the_border_asked_for(border, mode):
    run = Run.start(short(limit=64, pad=2, border=border), None, torch.device("cpu"))
    around = ((0, 0), (2, 2), (2, 2), (0, 0))
    assert np.array_equal(run.train.images.numpy(), np.pad(run.train.source.images, around, mode=mode))
    assert np.array_equal(run.test.images.numpy(), run.test.source.images)


def test_a_run_older_than_the_choice_of_borders_goes_on_with_black_ones(tmp_path):
    file = stopped(tmp_path)
    tensors, facts = sealed.read(file, KIND)
    del facts["run"]["border"]
    sealed.write(file, KIND, tensors, facts)
    with pytest.raises(CheckpointError, match=r'border = "zeros", now "reflect"'):
        train(short(limit=128, border="reflect"), tmp_path / "net.safetensors")
    assert train(short(limit=128), tmp_path / "net.safetensors").row["spec"]["border"] == "zeros"


def test_a_finished_run_is_left_as_it_is(whole, tmp_path):
    before = whole.read_bytes()
    trained = train(short(), whole)
    assert trained.was_there
    assert whole.read_bytes() == before
    with pytest.raises(CheckpointError, match="seed = 0, now 1"):
        train(short(seed=1), whole)
    with pytest.raises(CheckpointError, match="--no-resume"):
        train(short(), whole, resume=False)


def test_divergence_is_said_and_the_last_good_checkpoint_stays(tmp_path):
    out = tmp_path / "net.safetensors"
    with pytest.raises(InputError, match=r"training diverged in epoch \d.*Lower lr \(1e\+20\)"):
        train(short(lr=1e20, checkpoint_minutes=5), out)
    assert not out.exists()


def test_bad_calls(tmp_path, capsys):
    with pytest.raises(InputError, match=r"ending in .safetensors, got 'net.pt'"):
        train(short(), tmp_path / "net.pt")
    with pytest.raises(InputError, match="batch_size: expected at most the 30 training pictures"):
        train(short(limit=30), tmp_path / "net.safetensors")
    with pytest.raises(DataError, match="Run: steep data fetch cifar10"):
        train(TrainingSpec.from_recipe("train-cifar10-wrn-40-2"), tmp_path / "n.safetensors", root=tmp_path)
    assert main(["train", "train-cifar10-wrn-40-2", "--root", str(tmp_path), "--device", "cpu"]) == 2
    assert "Run: steep data fetch cifar10" in capsys.readouterr().err
    assert main(["train", "train-digits", "--set", "lrr=1"]) == 2
    assert "did you mean 'lr'? Known: about, batch_size" in capsys.readouterr().err.replace("\n", " ")
    assert main(["train", "train-digit"]) == 2
    assert "did you mean 'train-digits'" in capsys.readouterr().err
    assert main(["train", "train-digits", "--device", "toaster"]) == 2
    assert "--device: expected one that works here" in capsys.readouterr().err
    assert main(["train", "train-digits", "--set", "lr"]) == 2
    assert "expected KEY=VALUE" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_dry_run_shows_and_writes_nothing(tmp_path, capsys):
    assert main(["train", "train-cifar10-wrn-28-10", "--dry-run", "--root", str(tmp_path), "--set", "epochs=7"]) == 0
    printed = capsys.readouterr().out
    assert "7 epochs × 195 of 256 pictures = 1,365" in printed
    assert "36.48 M parameters" in printed
    assert "missing. Run: steep data fetch cifar10" in printed
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_the_weights_are_written_stops_after_them(tmp_path, monkeypatch):
    from steep.training import loop

    finish = loop._finish

    def interrupted(run, out):
        signal.raise_signal(signal.SIGINT)
        return finish(run, out)

    monkeypatch.setattr(loop, "_finish", interrupted)
    out = tmp_path / "digits.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(short(epochs=1, warmup_epochs=0), out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.json", "digits.safetensors"]


def test_a_checkpoint_whose_momentum_has_another_shape_is_refused(tmp_path):
    """It would spread over the weights, or a fused optimiser would write beyond it."""
    file = stopped(tmp_path)
    tensors, facts = sealed.read(file, KIND)
    name = next(name for name in tensors if name.startswith("momentum."))
    for wrong in (torch.zeros(1), torch.zeros(0)):
        sealed.write(file, KIND, {**tensors, name: wrong}, facts)
        with pytest.raises(CheckpointError, match="momentum"):
            train(short(limit=128), tmp_path / "net.safetensors")
