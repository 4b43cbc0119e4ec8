"""Real Hugging Face classifiers adapt: BatchNorm (ResNet), LayerNorm (ViT, ConvNeXt, Swin); and RMSNorm."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from architectures import CLASSES, MAKE, made, pictures
from PIL import Image
from torch import nn

import steep
from steep.cli import main
from steep.errors import InputError, NothingToAdaptError
from steep.predicting import load_model

TEA = {"sgld_steps": 2, "buffer_size": 64}
NORM = {
    "resnet": nn.BatchNorm2d,
    "convnext": nn.LayerNorm,
    "vit": nn.LayerNorm,
    "swin": nn.LayerNorm,
    "rmsnorm": nn.RMSNorm,
}


def logits_of(output):
    return output if isinstance(output, torch.Tensor) else output.logits


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("method", ["tent", "tea"])
def test_the_norm_parameters_move_and_nothing_else(name, method):
    model = made(name)
    expected = {
        f"{path}.{leaf}"
        for path, module in model.named_modules()
        if isinstance(module, NORM[name])
        for leaf, _ in module.named_parameters(recurse=False)
    }
    before = {n: p.clone() for n, p in model.state_dict().items()}
    adapter = steep.adapt(model, method, **(TEA if method == "tea" else {}))
    falls = []
    for seed in range(3):
        logits = adapter(pictures(seed=seed))
        assert logits.shape == (16, CLASSES)
        assert torch.isfinite(logits).all()
        falls.append((adapter.last.energy_before, adapter.last.energy_after))
    moved = {n for n, p in adapter.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved
    assert moved <= expected
    assert len(moved) > len(expected) / 2
    assert all(torch.equal(p, before[n]) for n, p in model.state_dict().items())
    if (
        method == "tea"
    ):  # the first step: later ones, on random weights, may serve the contrast by raising both energies
        assert falls[0][1] < falls[0][0]


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_source_answers_as_transformers_does(name):
    model, x = made(name), pictures()
    with torch.no_grad():
        torch.testing.assert_close(steep.adapt(model, "source")(x), logits_of(model(pixel_values=x)))


@pytest.mark.parametrize("name", ["convnext", "vit", "swin", "rmsnorm"])
def test_statistics_methods_say_why_they_cannot(name):
    for method in ("bn", "dua"):
        with pytest.raises(NothingToAdaptError, match=rf"{method} adapts .* BatchNorm.*Use a method that adapts param"):
            steep.adapt(made(name), method)


def processor(kind: str, **options):
    import transformers

    return getattr(transformers, kind)(**options)


@pytest.mark.parametrize("kind", ["ViTImageProcessor", "ConvNextImageProcessor", "BitImageProcessor"])
def test_normalisation_of_an_image_processor(kind):
    """What the processor itself does to a picture, and what the model is then given, are the same numbers."""
    theirs = processor(kind)
    pixels = (pictures(2) * 255).round().to(torch.uint8)
    expected = theirs(pixels, return_tensors="pt", do_resize=False, do_center_crop=False)["pixel_values"]
    ours = steep.models.normalized(nn.Identity(), theirs)
    torch.testing.assert_close(ours(pixels.float() / 255), expected, atol=1e-5, rtol=1e-5)


def test_a_saved_folder_predicts_with_its_own_normalisation_and_names(tmp_path, capsys):
    model = made("resnet")
    names = ["ant", "bee", "cat", "dog", "elk"]
    model.config.id2label = dict(enumerate(names))
    model.save_pretrained(tmp_path / "net")
    numbers = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    processor("ConvNextImageProcessor", **numbers).save_pretrained(tmp_path / "net")
    (tmp_path / "pictures").mkdir()
    pixels = (pictures(6) * 255).round().to(torch.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(tmp_path / "pictures" / f"{number}.png")
    call = ["predict", "--model", f"hf:{tmp_path / 'net'}", "--images", str(tmp_path / "pictures")]
    call += ["--out", str(tmp_path / "p.csv"), "--method", "source", "--size", "32", "--device", "cpu"]
    assert main(call) == 0
    assert "mean 0.485" in capsys.readouterr().err
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        expected = model(pixel_values=(pixels.float() / 255 - mean) / std).logits
    with (tmp_path / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["class"] for row in rows] == [names[i] for i in expected.argmax(1)]
    assert [float(row["energy"]) for row in rows] == pytest.approx((-expected.logsumexp(1)).tolist(), abs=1e-4)


def test_reading_a_folder_shows_no_bar_and_leaves_bars_as_they_were(tmp_path, capfd):
    from transformers.utils import logging

    made("resnet").save_pretrained(tmp_path)
    capfd.readouterr()
    shown = logging.is_progress_bar_enabled()
    try:
        for before in (True, False):
            (logging.enable_progress_bar if before else logging.disable_progress_bar)()
            load_model(f"hf:{tmp_path}")
            assert logging.is_progress_bar_enabled() == before
    finally:
        (logging.enable_progress_bar if shown else logging.disable_progress_bar)()
    assert capfd.readouterr().err == ""


def test_a_folder_without_a_processor_is_said_to_have_none(tmp_path):
    made("vit").save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert type(loaded.model).__name__ == "ViTForImageClassification"
    assert (loaded.classes, loaded.size) == ((), 32)


@pytest.mark.parametrize("answer", ["y", ""])
def test_the_code_in_a_folder_is_not_run_and_nobody_is_asked(tmp_path, monkeypatch, answer):
    """transformers asks on the terminal whether it may run a folder's code, unless it is told."""
    mark = tmp_path / "mark"
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Config: pass\n")
    auto_map = {"AutoConfig": "evil.Config", "AutoModelForImageClassification": "evil.Config"}
    (tmp_path / "net" / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": auto_map}))
    asked = []
    monkeypatch.setattr("builtins.input", lambda *prompt: asked.append(prompt) or answer)
    with pytest.raises(InputError, match="hf:"):
        load_model(f"hf:{tmp_path / 'net'}")
    assert not asked
    assert not mark.exists()
