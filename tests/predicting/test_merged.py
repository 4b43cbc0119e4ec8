"""The adapted model as an ordinary one: `steep predict --save-weights` writes what answers as the adapter does."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import steep
from nets import net
from steep.cli import main
from steep.models import checkpoints
from steep.predicting import Pictures, merged_model, predict

PIXELS = np.random.default_rng(0).integers(0, 120, (40, 8, 8, 3), dtype=np.uint8)
X = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Words of the command, but for the method and the table."""
    np.save(tmp_path / "images.npy", PIXELS)
    (tmp_path / "own.py").write_text("from nets import net\n\ndef make():\n    return net('batch')\n")
    (tmp_path / "gn.py").write_text("from nets import net\n\ndef make():\n    return net('group')\n")
    return ["predict", "--images", str(tmp_path / "images.npy"), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]


def energies(table: Path) -> list[float]:
    with table.open(newline="") as file:
        return [float(row["energy"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("method", ["bn", "tent"])
def test_saved_weights_answer_as_the_adapted_model(words, tmp_path, capsys, method):
    file = tmp_path / "adapted.safetensors"
    model = ["--model", f"{tmp_path / 'own.py'}:make"]
    assert main([*words, *model, "--method", method, "--save-weights", str(file)]) == 0
    errors = capsys.readouterr().err
    adapter = steep.adapt(net("batch"), method)
    adapter(X)
    with torch.no_grad():
        expected = -adapter.model(X).logsumexp(1)
        before = -net("batch")(X).logsumexp(1)
    assert (expected - before).abs().max() > 0.1  # or the source's statistics would do
    assert main([*words, *model, "--method", "source", "--weights", str(file), "--num-classes", "5"]) == 0
    assert energies(tmp_path / "p.csv") == pytest.approx(expected.tolist(), abs=1e-4)
    assert f"{file}: the adapted weights, with BatchNorm statistics measured on 40 of the pictures" in errors


def test_weights_without_batch_statistics_are_saved_as_they_are(words, tmp_path, capsys):
    file = tmp_path / "adapted.safetensors"
    assert main([*words, "--model", f"{tmp_path / 'gn.py'}:make", "--method", "tent", "--save-weights", str(file)]) == 0
    assert f"{file}: the adapted weights\n" in capsys.readouterr().err
    adapter = steep.adapt(net("group"), "tent")
    adapter(X)
    stored = checkpoints.read(file).tensors
    for name, value in adapter.model.state_dict().items():
        torch.testing.assert_close(stored[name], value)


def test_what_cannot_be_fixed_is_said_when_all_else_is_written(words, tmp_path, capsys):
    (tmp_path / "twice.py").write_text(
        "from nets import net\n\n"
        "def make():\n    model = net('batch')\n    model[5] = model[1]  # in two places\n    return model\n"
    )
    call = [*words, "--model", f"{tmp_path / 'twice.py'}:make", "--method", "bn"]
    saved = ["--save-weights", str(tmp_path / "w.safetensors"), "--save-state", str(tmp_path / "state")]
    assert main([*call, *saved]) == 2
    errors = capsys.readouterr().err
    assert "40 pictures" in errors
    assert "1 (BatchNorm2d) runs more than once in a forward" in errors
    assert len(energies(tmp_path / "p.csv")) == 40
    assert (tmp_path / "state").exists()
    assert not (tmp_path / "w.safetensors").exists()


def test_of_many_pictures_enough_are_read_again():
    read: list[int] = []

    def one(index: int, size: int | None, channels: int) -> np.ndarray:
        read.append(index)
        return PIXELS[index]

    pictures = Pictures(tuple(map(str, range(40))), ((),) * 40, one)
    adapter = predict(net("batch"), pictures, "bn", batch_size=16).adapter
    read.clear()
    progress: list[tuple[int, int]] = []
    module, seen = merged_model(
        adapter, pictures, batch_size=16, most=20, progress=lambda done, total: progress.append((done, total))
    )
    assert seen == 32
    assert progress == [(16, 32), (32, 32)]
    assert len(read) == 32
    assert max(read) > 31  # drawn from all, not the first of a stream
    with torch.no_grad():
        features = net("batch")[0](X[read])
    torch.testing.assert_close(module[1].running_mean, features.mean(dim=(0, 2, 3)), atol=1e-5, rtol=1e-5)
    assert merged_model(adapter, pictures, batch_size=16)[1] == 40
    read.clear()
    assert merged_model(predict(net("batch"), pictures, "source", size=8).adapter, pictures)[1] == 0
    assert len(read) == 40  # by predict alone
