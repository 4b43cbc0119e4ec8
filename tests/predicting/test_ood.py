"""`steep predict --unknown`: the energies of both folders recomputed by hand, and the AUROC counted pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import steep
from nets import net
from steep.cli import main
from steep.errors import DataError
from steep.predicting import ood_detection, open_pictures, predict


@pytest.fixture
def folders(tmp_path):
    """Twenty pictures of noise, and nine slightly darker ones."""
    draw = np.random.default_rng(0)
    for name, count, high in (("known", 20, 256), ("strangers", 9, 240)):
        (tmp_path / name).mkdir()
        for index in range(count):
            pixels = draw.integers(0, high, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{index:02d}.png")
    return tmp_path / "known", tmp_path / "strangers"


def tensor(folder) -> torch.Tensor:
    pixels = [np.array(Image.open(file)) for file in sorted(folder.iterdir())]
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255


def pairs_in_order(known: torch.Tensor, unknown: torch.Tensor) -> float:
    return (unknown[None] > known[:, None]).double().mean().item()


@pytest.mark.parametrize("kind", ["batch", "layer"])
def test_both_are_scored_by_the_model_as_it_came_and_as_it_is_adapted(folders, kind):
    known, strangers = map(tensor, folders)
    model = net(kind)
    predictions = predict(model, open_pictures(folders[0]), "tent", hyper={"lr": 0.1})
    before, after = ood_detection(model, predictions.adapter, *map(open_pictures, folders))
    assert (after.known, after.unknown) == (20, 9)
    adapter = steep.adapt(model, "tent", lr=0.1)
    adapter(known)
    for detected, scored in ((before, model), (after, adapter.merged(known))):
        with torch.no_grad():
            energies = [-scored(x).logsumexp(1) for x in (known, strangers)]
        assert detected.auroc == pytest.approx(pairs_in_order(*energies), abs=1e-6)
    assert before != after


def test_on_the_command_line(folders, tmp_path, capsys):
    (tmp_path / "own.py").write_text("from nets import net\n\ndef make():\n    return net('batch')\n")
    call = ["predict", "--model", f"{tmp_path / 'own.py'}:make", "--images", str(folders[0]), "--method", "tent"]
    call += ["--unknown", str(folders[1]), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]
    assert main(call) == 0
    model = net("batch")
    with torch.no_grad():
        auroc = pairs_in_order(*(-model(tensor(folder)).logsumexp(1) for folder in folders))
    out = capsys.readouterr().out
    assert "energy tells 20 pictures from 9 of no class: AUROC" in out
    assert f"% with tent, AUROC {auroc:.1%}, FPR95" in out


def test_strangers_that_cannot_be_read_are_said(folders):
    for file in folders[1].iterdir():
        file.write_bytes(b"no picture")
    adapter = predict(net("layer"), open_pictures(folders[0]), "tent").adapter
    with pytest.raises(DataError, match="none of the 9 pictures of no class can be read"):
        ood_detection(net("layer"), adapter, *map(open_pictures, folders))
