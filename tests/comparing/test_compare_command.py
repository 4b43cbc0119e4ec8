"""`steep compare`: from a model and a folder of pictures to a verdict."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import steep
from steep import cli
from steep.models import checkpoints
from steep.predicting import batch_size


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    model = steep.models.build("wrn-10-1", 3)
    return checkpoints.save(
        model, tmp_path_factory.mktemp("weights") / "net.safetensors", {"classes": '["a", "b", "c"]'}
    )


def pictures(folder: Path, n: int = 24, side: int = 16) -> Path:
    draw = np.random.default_rng(0)
    for number in range(n):
        file = folder / "abc"[number % 3] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (side, side, 3), np.uint8)).save(file)
    return folder


def run(capsys, *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    text = capsys.readouterr()
    return code, text.out, text.err


def test_folders_named_like_classes_are_labels(tmp_path, weights, capsys) -> None:
    folder = pictures(tmp_path)
    command = ("compare", "--model", "wrn-10-1", "--weights", weights, "--images", folder, "--methods", "bn")
    code, out, _ = run(capsys, *command, "--batch-size", 8)
    assert code == 0
    assert "24 images, measured by 24 labels" in out
    assert out.splitlines()[1].split() == ["method", "accuracy", "gain", "interval", "changed", "verdict"]


def test_labels_from_a_table(tmp_path, weights, capsys) -> None:
    array = tmp_path / "some.npy"
    pixels = np.random.default_rng(1).integers(0, 256, (12, 16, 16, 3), np.uint8)
    np.save(array, pixels)
    command = ("compare", "--model", "wrn-10-1", "--weights", weights, "--images", array, "--methods", "bn")
    assert "12 images, estimated without labels" in run(capsys, *command)[1]
    table = tmp_path / "truth.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("file", "class"), *((f"some.npy[{k}]", "abc"[k % 3]) for k in range(9))])
    assert "12 images, measured by 9 labels" in run(capsys, *command, "--labels", table)[1]
    table.write_text("nothing,here\n")
    code, _, err = run(capsys, *command, "--labels", table)
    assert code == 2
    assert "expected lines such as some.npy[0],a" in err.replace("\n", " ")


def test_the_batch_is_chosen_by_memory_and_a_model_without_a_size_is_told_of(
    tmp_path, weights, capsys, monkeypatch
) -> None:
    command = ["compare", "--model", "wrn-10-1", "--weights", weights, "--images", pictures(tmp_path)]
    command += ["--methods", "tent"]
    monkeypatch.setitem(steep.adapt.__kwdefaults__, "guard", "recover")  # small batches wait, and are counted
    printed = run(capsys, *command)
    assert "of 1 batches" in printed[1]
    assert "16 × 16" in printed[2]
    monkeypatch.setattr(batch_size, "_free_memory", lambda device: 0)
    printed = run(capsys, *command, "--size", 8)
    assert "of 24 batches" in printed[1]
    assert "pictures stay as they are" not in printed[2]
    assert "of 3 batches" in run(capsys, *command, "--size", 8, "--batch-size", 8)[1]


@pytest.mark.slow
def test_from_nothing_to_a_verdict_with_one_command(tmp_path) -> None:
    """A stranger's folder of photographs and a Hugging Face ResNet-18, in a process of its own."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "model")
    about = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(about))
    folder, draw = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    for number in range(100):
        coarse = Image.fromarray(draw.integers(0, 256, (9, 12, 3), np.uint8))
        coarse.resize((400 + number, 300 + 2 * number), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")
    words = [sys.executable, "-m", "steep", "compare", "--model", f"hf:{tmp_path / 'model'}", "--images", str(folder)]
    start = time.monotonic()
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert time.monotonic() - start < 120
    *_, verdict = done.stdout.strip().splitlines()
    assert verdict.startswith(("Adapt with", "Do not adapt", "Keep the model"))
    assert "100 images, estimated without labels" in done.stdout
