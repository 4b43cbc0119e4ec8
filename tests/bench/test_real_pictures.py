"""The benchmark of real pictures runs end to end on a few made ones, with a stand-in for EfficientNet-Lite0."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import steep
from benchmarks import real_pictures
from steep.bench.rows import packed, read
from steep.data.known import data_set
from steep.models import packaged


@pytest.fixture
def lite(tmp_path, monkeypatch) -> None:
    def from_name(name):
        layers = [nn.Conv2d(3, 4, 7, stride=8), nn.BatchNorm2d(4), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(4, 1000))

    code = ModuleType("efficientnet_lite_pytorch")
    code.EfficientNet = type("EfficientNet", (), {"from_name": staticmethod(from_name)})
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", code)
    known = packaged.PACKAGED["efficientnet-lite0"]
    file = tmp_path / known.package / "models" / "net.pth"
    file.parent.mkdir(parents=True)
    (file.parent.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    torch.manual_seed(0)
    torch.save(from_name("").state_dict(), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    stand_in = packaged.Packaged(known.package, "net.pth", digest, known.wants)
    monkeypatch.setitem(packaged.PACKAGED, "efficientnet-lite0", stand_in)


def picture(path: Path, seed: int, side: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.mark.usefixtures("lite")
def test_imagenet_in_batches_of_two_sizes(tmp_path, capsys):
    root = tmp_path / "data" / "imagenet"
    ids = [f"n{number:08d}" for number in range(1000)]
    for number in range(6):
        picture(root / "val" / f"{number}.png", number, 227)
    (root / "synsets.txt").write_text("\n".join(ids))
    (root / "val.txt").write_text("\n".join(f"val/{number}.png {ids[7 * number]}" for number in range(6)))
    only = ["--only", "method=source,bn", "shift=clean,fog", "severity=0,5"]
    words = ["imagenet", "--root", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--device", "cpu"]
    real_pictures.main([*words, "--batches", "2", "6", "--crop", "0.9867", *only])
    rows = [row for batch in (2, 6) for row in read(tmp_path / "out" / f"imagenet-c-lite0-batch-{batch}")]
    assert sorted((r["spec"]["batch_size"], r["spec"]["method"], r["spec"]["shift"]) for r in rows) == sorted(
        (batch, method, shift) for batch in (2, 6) for method in ("source", "bn") for shift in ("clean", "fog")
    )
    assert {(r["n"], r["spec"]["size"], r["spec"]["weights"]) for r in rows} == {(6, 224, "pretrained")}
    capsys.readouterr()
    real_pictures.main(["summary", "--out", str(tmp_path / "out")])
    assert "| bn | 2 |" in capsys.readouterr().out


@pytest.mark.usefixtures("lite")
def test_domains_are_fine_tuned_and_every_pair_is_run(tmp_path):
    root = tmp_path / "data"
    for domain in data_set("office-caltech").domains:
        for number in range(10):
            picture(root / "images" / domain / f"class{number}" / f"{number}.png", number, 32)
    words = ["domains", "--root", str(root), "--out", str(tmp_path / "out"), "--device", "cpu", "--sets"]
    words += ["office-caltech", "--train", "epochs=1", "warmup_epochs=0", "batch_size=4", "--only", "method=source"]
    real_pictures.main(words)
    rows = read(tmp_path / "out" / "office-caltech-lite0")
    assert len({(r["spec"]["source"], r["spec"]["shift"]) for r in rows}) == len(rows) == 12
    trained = json.loads((tmp_path / "out" / "weights" / "office-caltech-dslr-lite0.json").read_text())
    of_dslr = {r["spec"]["weights_sha256"] for r in rows if r["spec"]["source"] == "dslr"}
    assert of_dslr == {trained["weights_sha256"]}
    assert trained["image_shape"] == [224, 224, 3]


@pytest.mark.usefixtures("lite")
def test_speed_is_measured_beside_tent(tmp_path, monkeypatch):
    monkeypatch.setattr(real_pictures, "resnet50", real_pictures._lite0)
    assert "auto" in real_pictures.SPEED
    monkeypatch.setattr(real_pictures, "SPEED", {"tent": [{}], "auto": [{}]})
    guards, adapt = [], steep.adapt
    monkeypatch.setattr(steep, "adapt", lambda *a, **how: guards.append(how["guard"]) or adapt(*a, **how))
    words = ["speed", "--out", str(tmp_path), "--device", "cpu", "--batches", "4", "--side", "32", "--seconds", "0"]
    real_pictures.main(words)
    rows = [json.loads(line) for line in (tmp_path / "speed-224.jsonl").read_text().splitlines()]
    assert [(r["model"], r["method"]) for r in rows] == [
        (model, method) for model in ("efficientnet-lite0", "resnet-50") for method in ("tent", "auto")
    ]
    assert guards == [row["guard"] for row in rows] == ["skip"] * 4  # no look at the source model is timed
    for row in rows:
        assert row["images_per_s"] == pytest.approx(4000 / row["ms"], rel=0.01)


def test_the_table_counts_what_is_below_the_source_image_by_image():
    def row(method, shift, right):
        flags = np.array(right, dtype=bool)
        spec = {"method": method, "shift": shift, "severity": 5, "source": "", "batch_size": 8, "setting": "paper"}
        return {
            "spec": spec,
            "right": packed(flags),
            "n": len(flags),
            "accuracy": flags.mean(),
            "data": [{"sha256": shift}],
        }

    rows = [row("source", s, [1] * 60 + [0] * 40) for s in ("fog", "snow")]
    rows += [row("bn", "fog", [1] * 30 + [0] * 70), row("bn", "snow", [1] * 59 + [0] * 41)]
    assert "| bn | 2 | 44.5 | -15.5 | 1 | fog -30.0 |" in real_pictures.table(rows)


def test_the_resnet_of_large_pictures_is_the_usual_one():
    model = real_pictures.resnet50()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032  # as torchvision counts its own
    assert model.conv1(torch.zeros(1, 3, 224, 224)).shape == (1, 64, 56, 56)
