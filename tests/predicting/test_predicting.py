"""`steep predict` end to end on pictures made here, its table recomputed with nothing of its own code."""

from __future__ import annotations

import csv
import json
import os
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import steep
from steep import models
from steep.cli import main
from steep.data import load
from steep.errors import CheckpointError, DataError, InputError, UnknownNameError
from steep.models import checkpoints
from steep.predicting import Pictures, batch_size, load_model, open_pictures, predict
from steep.predicting.table import COLUMNS, Row, write_table
from steep.training import TrainingSpec, train


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A digits model that has learnt a little, with the metadata `steep train` writes."""
    spec = TrainingSpec.from_recipe("train-digits", {"epochs": 4, "limit": 640})
    return train(spec, tmp_path_factory.mktemp("weights") / "digits.safetensors").weights


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    data = load("digits", limit=60)
    return data.images, data.labels


@pytest.fixture
def folder(tmp_path, digits) -> Path:
    """Sixty PNGs in a folder for each class, some a level deeper, with hidden and foreign files beside them."""
    root = tmp_path / "pictures"
    for number, (image, label) in enumerate(zip(*digits, strict=True)):
        place = root / str(label) / "deeper" if number % 3 == 0 else root / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[..., 0]).save(place / f"{number:03d}.png")
    (root / "notes.txt").write_text("no picture")
    (root / ".hidden.png").write_bytes(b"no picture")
    return root


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def recompute(weights: Path, images: np.ndarray, order: np.ndarray, batch: int, method: str, **hyper) -> torch.Tensor:
    """Logits of the adapted model, by the public names alone."""
    model = models.build("wrn-10-1", 10, in_channels=1)
    checkpoints.load(model, weights)
    adapter = steep.adapt(model, method, **hyper)
    x = torch.from_numpy(images.copy()).permute(0, 3, 1, 2).float() / 255
    logits = torch.empty(len(images), 10)
    for start in range(0, len(order), batch):
        at = order[start : start + batch]
        logits[at] = adapter(x[at])
    return logits


def test_every_argument_of_adapt_is_passed_on(weights, folder):
    loaded = load_model("wrn-10-1", weights=weights, num_classes=10, channels=1)
    how = {"guard": "skip", "steps": 2, "precision": "bfloat16"}
    adapter = predict(loaded.model, open_pictures(folder), "tent", channels=1, hyper={"lr": 0.5}, **how).adapter
    assert adapter.method.lr == 0.5
    assert {name: getattr(adapter.behaviour, name) for name in how} == how


def test_a_folder_per_class_end_to_end(weights, folder, digits, tmp_path, capsys):
    out, adapted, state = tmp_path / "p.csv", tmp_path / "adapted.safetensors", tmp_path / "state.safetensors"
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(folder), "--out", str(out)]
    call += ["--method", "tent", "--set", "lr=0.002", "--batch-size", "25", "--seed", "3", "--device", "cpu"]
    assert main([*call, "--save-weights", str(adapted), "--save-state", str(state)]) == 0
    printed, errors = capsys.readouterr()

    rows = rows_of(out)
    files = sorted(folder.rglob("[0-9]*.png"))
    assert [row["file"] for row in rows] == [file.relative_to(folder).as_posix() for file in files]
    images, labels = digits
    numbers = [int(file.stem) for file in files]
    order = np.random.default_rng(3).permutation(60)
    logits = recompute(weights, images[numbers], order, 25, "tent", lr=0.002)
    probability, answer = logits.softmax(1).max(1)
    assert [row["class"] for row in rows] == [str(a) for a in answer.tolist()]
    assert [float(row["probability"]) for row in rows] == pytest.approx(probability.tolist(), abs=1e-5)
    assert [float(row["energy"]) for row in rows] == pytest.approx((-logits.logsumexp(1)).tolist(), abs=1e-4)
    assert {row["skipped"] for row in rows} == {""}

    right = (answer.numpy() == labels[numbers]).mean()
    plain = recompute(weights, images[numbers], order, 25, "source").argmax(1).numpy()
    assert [row["source_class"] for row in rows] == [str(a) for a in plain.tolist()]
    before = (plain == labels[numbers]).mean()
    assert printed == f"accuracy on 60: {right:.1%} with tent, {before:.1%} without adaptation\n"
    assert right > 0.5
    changed = int((answer.numpy() != plain).sum())
    assert f"60 pictures in batches of 25; {changed} have another answer than the source model's" in errors
    assert "no answer is adapted" not in errors

    again = steep.resume(state, load_model("wrn-10-1", weights=weights).model)
    stored = checkpoints.read(adapted).tensors
    assert all(torch.equal(value, stored[name]) for name, value in again.model.named_parameters())
    assert load_model("wrn-10-1", weights=adapted, num_classes=10).channels == 1


def test_unreadable_pictures_are_listed_and_skipped(weights, folder, tmp_path, capsys):
    (folder / "3" / "zz-broken.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    (folder / "5" / "zz-empty.jpg").write_bytes(b"")
    out = tmp_path / "p.csv"
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(folder), "--out", str(out)]
    assert main([*call, "--method", "bn", "--device", "cpu"]) == 0
    errors = capsys.readouterr().err
    assert "60 pictures" in errors
    assert "2 not readable, skipped:\n  3/zz-broken.png\n  5/zz-empty.jpg" in errors
    rows = {row["file"]: row for row in rows_of(out)}
    assert len(rows) == 62
    for name in ("3/zz-broken.png", "5/zz-empty.jpg"):
        assert rows[name]["skipped"].startswith("unreadable: ")
        assert rows[name]["class"] == rows[name]["probability"] == rows[name]["energy"] == ""


def test_a_flat_folder_keeps_its_order_and_has_no_labels(weights, digits, tmp_path):
    images, _ = digits
    for number, image in enumerate(images):
        Image.fromarray(image[..., 0]).save(tmp_path / f"{number:03d}.png")
    loaded = load_model("wrn-10-1", weights=weights)
    assert (loaded.classes, loaded.channels, loaded.size) == (tuple("0123456789"), 1, 8)
    predictions = predict(
        loaded.model, open_pictures(tmp_path), "tea", channels=1, batch_size=30, hyper={"sgld_steps": 2}
    )
    logits = recompute(weights, images, np.arange(60), 30, "tea", sgld_steps=2)
    assert [row.label for row in predictions.rows] == [str(a) for a in logits.argmax(1).tolist()]
    assert predictions.accuracy is None
    assert predictions.remark is None


def test_an_array_gives_the_same_as_its_pictures(weights, digits, tmp_path):
    images, _ = digits
    np.save(tmp_path / "images.npy", images)
    loaded = load_model("wrn-10-1", weights=weights)
    predictions = predict(loaded.model, open_pictures(tmp_path / "images.npy"), "bn", channels=1, batch_size=60)
    logits = recompute(weights, images, np.arange(60), 60, "bn")
    assert [row.energy for row in predictions.rows] == pytest.approx((-logits.logsumexp(1)).tolist(), abs=1e-4)
    assert predictions.rows[7].file == "images.npy[7]"


def test_a_batch_that_was_not_adapted_on_says_why(weights, digits, tmp_path):
    np.save(tmp_path / "images.npy", digits[0])
    model = load_model("wrn-10-1", weights=weights).model
    predictions = predict(model, open_pictures(tmp_path / "images.npy"), "eta", channels=1, hyper={"margin": 0})
    assert {row.skipped for row in predictions.rows} == {"not adapted: no reliable and novel image"}
    assert all(row.label is not None for row in predictions.rows)


@pytest.mark.parametrize(("method", "adapted"), [("tent", False), ("tea", True), ("bn", True)])
def test_one_batch_that_is_answered_before_it_is_learned_from_is_said(
    weights, digits, tmp_path, capsys, method, adapted
):
    np.save(tmp_path / "images.npy", digits[0][:12])
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(tmp_path / "images.npy")]
    call += ["--method", method, "--device", "cpu", *(["--set", "sgld_steps=2"] if method == "tea" else [])]
    assert main([*call, "--out", str(tmp_path / "p.csv")]) == 0
    errors = capsys.readouterr().err
    assert "12 pictures in batches of 12" in errors
    assert ("no answer is adapted" in errors) is not adapted


def test_the_batch_is_halved_until_a_step_fits_into_memory(monkeypatch):
    convolution = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    model = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5))
    x = torch.rand(1, 3, 8, 8)
    each = 4 * (3 * 64 + 8 * 64)  # what a backward needs of one picture: the image, and the output of the ReLU
    for free, count in [(1 << 40, 200), (4 * 200 * each, 200), (4 * 200 * each - 1, 100), (4 * 25 * each, 25), (0, 1)]:
        monkeypatch.setattr(batch_size, "_free_memory", lambda device, free=free: free)
        assert batch_size.fitting(model, x) == count
    assert batch_size.fitting(model, x[:, :1]) == 200  # a picture that the model cannot take is no matter of memory
    monkeypatch.undo()
    assert batch_size._free_memory(torch.device("cpu")) > 1 << 20


def test_how_many_batches_were_not_adapted_on_is_said(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from nets import net\n"
        "def make():\n"
        "    model = net('group')\n"
        "    def level(module, args, out):  # all classes alike for bright pictures, far apart for dark ones\n"
        "        return 1e3 * out * (args[0].mean() < 0.5)\n"
        "    model.register_forward_hook(level)\n"
        "    return model\n"
    )
    levels = np.repeat(np.array([60, 200, 200], np.uint8), 20)[:, None, None, None]
    noise = np.random.default_rng(0).integers(0, 50, (60, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", levels + noise)
    call = ["predict", "--model", f"{tmp_path / 'mine.py'}:make", "--images", str(tmp_path / "images.npy")]
    call += ["--out", str(tmp_path / "p.csv"), "--batch-size", "20", "--device", "cpu"]
    assert main([*call, "--method", "eta"]) == 0
    errors = capsys.readouterr().err
    assert "2 of 3 batches answered without adapting, the first because: no reliable and novel image" in errors
    assert [bool(row["skipped"]) for row in rows_of(tmp_path / "p.csv")] == [False] * 20 + [True] * 40
    for method in ("source", "tent"):
        assert main([*call, "--method", method]) == 0
        assert "without adapting" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:step undone")
def test_steps_that_the_guard_undoes_are_said(weights, digits, tmp_path, capsys):
    np.save(tmp_path / "images.npy", digits[0])
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(tmp_path / "images.npy")]
    call += ["--method", "tent", "--set", "lr=1e39", "--batch-size", "30", "--device", "cpu"]
    assert main([*call, "--out", str(tmp_path / "p.csv")]) == 0
    errors = capsys.readouterr().err
    assert "2 of 2 batches answered without adapting, the first because: the parameters are not finite" in errors


def test_a_factory_in_a_file(weights, folder, tmp_path, capsys):
    code = tmp_path / "mine.py"
    code.write_text(
        "import steep\n"
        "def make(num_classes=3):\n    return steep.models.build('wrn-10-1', num_classes, in_channels=1)\n"
        "def wrong():\n    return 3\n"
        "def broken():\n    raise OSError('no such checkpoint')\n"
    )
    out = tmp_path / "p.csv"

    def call(name: str) -> int:
        words = ["predict", "--model", f"{code}:{name}", "--weights", str(weights), "--images", str(folder)]
        return main([*words, "--out", str(out), "--method", "bn", "--device", "cpu"])

    assert call("make") == 0
    assert "accuracy on 60" in capsys.readouterr().out
    assert len(rows_of(out)) == 60
    assert call("wrong") == 2
    assert "expected it to return a torch.nn.Module, got int" in capsys.readouterr().err
    assert call("broken") == 2
    assert "OSError: no such checkpoint" in capsys.readouterr().err
    assert call("mak") == 2
    assert "did you mean 'make'" in capsys.readouterr().err
    assert len(rows_of(out)) == 60  # what was there is still whole


def test_normalisation_size_and_planes(weights, digits, tmp_path):
    """A colour model behind a normalisation, fed grey pictures of another size."""
    torch.manual_seed(0)
    net = models.build("wrn-10-1", 4)
    checkpoints.save(net, tmp_path / "net.pt")
    Image.fromarray(digits[0][0, ..., 0]).resize((20, 13)).save(tmp_path / "a.png")
    Image.fromarray(digits[0][1, ..., 0]).save(tmp_path / "b.png")
    loaded = load_model("wrn-10-1", weights=tmp_path / "net.pt", mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.4])
    predictions = predict(loaded.model, open_pictures(tmp_path), "source", size=16)
    for row in predictions.rows:
        with Image.open(tmp_path / row.file) as picture:
            pixels = np.array(picture.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))
        x = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
        x = (x - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
        with torch.no_grad():
            logits = net.eval()(x)
        assert row.energy == pytest.approx(-logits.logsumexp(1).item(), abs=1e-4)
        assert row.label == str(logits.argmax().item())
    with pytest.raises(InputError, match=r"b.png: 8 × 8 pixels, but a.png has 20 × 13. Give --size"):
        predict(loaded.model, open_pictures(tmp_path), "source")
    # weights saved with their normalisation bring it back
    checkpoints.save(predictions.adapter.model, tmp_path / "wrapped.safetensors")
    again = load_model("wrn-10-1", weights=tmp_path / "wrapped.safetensors").model
    assert isinstance(again, models.Normalized)
    assert torch.equal(again.std, loaded.model.std)
    with pytest.raises(InputError, match="carry their own normalisation"):
        load_model("wrn-10-1", weights=tmp_path / "wrapped.safetensors", mean=[0.4] * 3, std=[0.2] * 3)


def test_two_classes_of_one_name_are_one_answer():
    names = ("crane/a.png", "dog/b.png")
    pictures = Pictures(
        names, (("crane",), ("dog",)), lambda index, size, channels: np.full((4, 4, 3), index, np.uint8)
    )
    biased = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    nn.init.zeros_(biased[1].weight)
    for first, accuracy in ((0, 0.5), (1, 0.5), (2, 0.5)):  # crane, dog and crane again
        biased[1].bias.data = torch.eye(3)[first]
        assert predict(biased, pictures, "source", classes=("crane", "dog", "crane")).accuracy == accuracy


def test_labels_from_folders(tmp_path):
    for name in ("cat/a.png", "dog/x/b.png", "dog/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    pictures = open_pictures(tmp_path)
    assert pictures.labels((), 2) == ([0, 1, 1], ("cat", "dog"), None)
    labels, _, remark = pictures.labels((), 5)
    assert labels == [None] * 3
    assert remark is not None
    assert "2 folders for 5 classes" in remark
    assert pictures.names == ("cat/a.png", "dog/c.png", "dog/x/b.png")
    assert pictures.labels(("x", "dog"), 2)[0] == [None, 1, 0]  # the innermost folder that bears a name
    assert "no folder is named like a class" in str(pictures.labels(("bird", "cow"), 2)[2])


def test_bad_input(weights, tmp_path, capsys):
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / "a.png").write_bytes(b"nothing")
    Image.new("L", (8, 8)).save(tmp_path / "one.png")
    good = {
        "--model": "wrn-10-1",
        "--weights": str(weights),
        "--images": str(tmp_path),
        "--out": str(tmp_path / "p.csv"),
    }
    wrong = [
        ({"--images": str(empty)}, "no picture in it or below it"),
        ({"--images": str(broken)}, "none of the 1 pictures can be read"),
        ({"--images": str(tmp_path / "none")}, "got nothing there"),
        ({"--out": str(tmp_path / "p.txt")}, "expected a name ending in .csv or .parquet"),
        ({"--model": "wrn-10-2"}, "does not fit WideResNet"),
        ({"--model": "resnett-18-bn"}, "did you mean 'resnet-18-bn'"),
        ({"--weights": str(tmp_path / "none.pt")}, "expected a file of weights"),
        ({"--method": "tee"}, "did you mean 'tea'"),
        ({"--set": "lrr=1"}, "did you mean 'lr'"),
        ({"--set": "lr=fast"}, "tea: lr: expected"),
        ({"--mean": "0.5"}, "mean and std: expected both or neither"),
        ({"--mean": "a,b", "--std": "1"}, "--mean: expected numbers with commas"),
        ({"--classes": str(tmp_path / "none.txt")}, "--classes"),
        ({"--num-classes": "7"}, "num_classes: expected 10"),
        ({"--device": "toaster"}, "--device: expected one that works here"),
        ({"--save-weights": "w.pt"}, "--save-weights: expected a name ending in .safetensors"),
        ({"--model": "nowhere.py:make"}, "no file nowhere.py"),
        ({"--size": "100000000"}, "size: expected 1 to 10,000 pixels, got 100000000"),
    ]
    for change, message in wrong:
        assert main(["predict", *(word for pair in ({**good, **change}).items() for word in pair)]) == 2
        assert message in capsys.readouterr().err, change
    assert not (tmp_path / "p.csv").exists()


def test_a_model_without_weights_is_refused():
    with pytest.raises(InputError, match=r"wrn-10-1: expected weights, got none"):
        load_model("wrn-10-1", num_classes=10)


@pytest.mark.parametrize(
    ("door", "package", "extra"),
    [("timm", "timm", "hub"), ("torchvision", "torchvision", "hub"), ("hf", "transformers", "hf")],
)
def test_a_missing_extra_is_named(door, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(InputError, match=rf"{package}.*'\.\[{extra}\]'"):
        load_model(f"{door}:resnet18", pretrained=True)
    with pytest.raises(InputError, match=r"expected weights. Give --weights FILE, or --pretrained"):
        load_model(f"{door}:resnet18")


def test_a_folder_without_its_prefix_is_told_its_name(tmp_path):
    (tmp_path / "net").mkdir()
    with pytest.raises(InputError, match=r"a folder\. If save_pretrained wrote it, it is called hf:.*net$"):
        load_model(str(tmp_path / "net"))


def test_parquet_without_pyarrow_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"needs pyarrow. Run: pip install pyarrow"):
        write_table([], tmp_path / "p.parquet")


def test_parquet_with_pyarrow(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(
        [Row("a.png", "cat", 0.5, -1.0, "dog"), Row("b.png", None, None, None, skipped="unreadable: x")],
        tmp_path / "p.parquet",
    )
    assert parquet.read_table(tmp_path / "p.parquet").to_pylist() == [
        dict(zip(COLUMNS, ("a.png", "cat", 0.5, -1.0, "dog", ""), strict=True)),
        dict(zip(COLUMNS, ("b.png", None, None, None, None, "unreadable: x"), strict=True)),
    ]


def test_names_the_table_can_hold(tmp_path):
    rows = [Row('a,"b".png', "sea, lion", 0.5, -1.0, "=sea")]
    assert rows_of(write_table(rows, tmp_path / "p.csv"))[0] == {
        "file": 'a,"b".png', "class": "sea, lion", "probability": "0.500000", "energy": "-1.000000",
        "source_class": "'=sea", "skipped": "",
    }  # fmt: skip


def test_class_names_have_to_be_as_many_as_logits(weights, digits, tmp_path):
    np.save(tmp_path / "images.npy", digits[0])
    model = load_model("wrn-10-1", weights=weights).model
    with pytest.raises(InputError, match="classes: expected 10 names, one for each logit, got 2"):
        predict(model, open_pictures(tmp_path / "images.npy"), "bn", classes=("a", "b"), channels=1)
    with pytest.raises(UnknownNameError, match="did you mean 'tent'"):
        predict(model, open_pictures(tmp_path / "images.npy"), "tant", channels=1)
    np.save(tmp_path / "floats.npy", np.zeros((2, 8, 8, 1)))
    with pytest.raises(DataError, match="images must be uint8"):
        open_pictures(tmp_path / "floats.npy")


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path):
    rows = [Row("=cmd!A1.png", "=1+1", 0.5, -1.0), Row("-a.png", "-1", 0.5, 1.0), Row("a.png", "@x", None, None, "=2")]
    read = rows_of(write_table(rows, tmp_path / "p.csv"))
    assert [row["file"] for row in read] == ["./=cmd!A1.png", "./-a.png", "a.png"]  # which still name the files
    assert [row["class"] for row in read] == ["'=1+1", "-1", "'@x"]
    assert [row["energy"] for row in read] == ["-1.000000", "1.000000", ""]


@pytest.mark.parametrize("control", ["\r", "\n", "\t", "\v", "\x85", "\u2028", "\x1b[2J"])
def test_no_name_starts_a_row_of_its_own(tmp_path, control):
    odd = Row(f"a{control}=1+1.png", f"cat{control}@x", 0.5, -1.0, f"{control}=3", f"odd{control}-2")
    rows = [odd, Row(f"{control}=2", "b", 1, 1)]
    text = write_table(rows, tmp_path / "p.csv").read_bytes().decode()
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in text.replace("\n", ""))
    lines = text.split("\n")
    assert len(lines) == 4  # a header, two rows, the last line end
    assert not any(cell.startswith(("=", "@", "+")) for line in lines for cell in line.split(","))


def test_folders_whose_names_are_no_text_become_classes_all_the_same(tmp_path, digits):
    root = os.fsencode(tmp_path / "pictures")
    for number, (image, label) in enumerate(zip(*digits, strict=True)):
        place = root + b"/\xff%d" % label
        os.makedirs(place, exist_ok=True)
        with open(place + b"/%d.png" % number, "wb") as file:
            Image.fromarray(image[..., 0]).save(file, format="png")
    code = tmp_path / "mine.py"
    code.write_text("import steep\ndef make():\n    return steep.models.build('wrn-10-1', 10)\n")
    out = tmp_path / "p.csv"
    words = ["--model", f"{code}:make", "--images", str(tmp_path / "pictures"), "--out", str(out), "--device", "cpu"]
    assert main(["predict", *words, "--method", "bn"]) == 0
    rows = rows_of(out)
    assert len(rows) == 60
    assert {row["class"] for row in rows} <= {f"\\xff{number}" for number in range(10)}
    assert rows[0]["file"].startswith("\\xff0/")


def test_hostile_metadata_is_not_believed(weights, tmp_path):
    tensors = checkpoints.read(weights).tensors
    metadata = {"classes": json.dumps([0, None, *range(2, 10)]), "image_shape": '["x", "x", 1]', "run": "[" * 100_000}
    save_file({name: value.contiguous() for name, value in tensors.items()}, tmp_path / "w.safetensors", metadata)
    loaded = load_model("wrn-10-1", weights=tmp_path / "w.safetensors")
    assert loaded.classes == ("0", "None", *"23456789")
    assert loaded.size is None
    with pytest.raises(CheckpointError, match="made with another recipe"):
        train(TrainingSpec.from_recipe("train-digits"), tmp_path / "w.safetensors", resume=True)


def test_what_cannot_work_is_said_before_the_pictures_are_read(weights, folder, tmp_path, capsys, monkeypatch):
    quits = tmp_path / "quits.py"
    quits.write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "file").write_text("")
    call = ["predict", "--images", str(folder), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]
    mine = ["--model", "wrn-10-1", "--weights", str(weights)]
    monkeypatch.setattr("steep.predicting.pictures.picture", None)  # whoever reads one fails
    for words, message in (
        ([*mine, "--seed", "-1"], "seed: expected 0 or more, got -1"),
        ([*mine, "--save-state", str(tmp_path / "file" / "s")], "file"),
        ([*mine, "--save-weights", str(tmp_path / "file" / "w.safetensors")], "file"),
        (["--model", f"{quits}:make"], "SystemExit: 3"),
    ):
        assert main([*call, *words]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert "Traceback" not in errors
    assert not (tmp_path / "p.csv").exists()


def test_a_name_does_not_speak_to_the_terminal(weights, folder, tmp_path, capsys):
    (folder / "3" / "zz\x1b[31m:two:[red].png").write_bytes(b"nothing")
    call = ["predict", "--model", "wrn-10-1", "--weights", str(weights), "--images", str(folder)]
    assert main([*call, "--out", str(tmp_path / "p.csv"), "--method", "bn", "--device", "cpu"]) == 0
    errors = capsys.readouterr().err
    assert "\x1b" not in errors
    assert r"3/zz\x1b[31m:two:[red].png" in errors


def test_weights_that_steep_train_made_are_found_by_their_name(weights, folder, tmp_path, monkeypatch):
    (tmp_path / "data" / "weights").mkdir(parents=True)
    (tmp_path / "data" / "weights" / "mine.safetensors").write_bytes(weights.read_bytes())
    monkeypatch.setenv("STEEP_DATA", str(tmp_path / "data"))
    words = ["--weights", "mine", "--images", str(folder), "--method", "source", "--out", str(tmp_path / "a.csv")]
    assert main(["predict", "--model", "wrn-10-1", *words]) == 0


def test_a_factory_may_use_dataclasses_and_the_files_beside_it(weights, folder, tmp_path, capsys):
    (tmp_path / "beside_it.py").write_text("DEPTH = 10\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "import steep\nfrom beside_it import DEPTH\n\n"
        "@dataclass\nclass Plan:\n    width: int = 1\n\n"
        "def net(num_classes):\n    import beside_it\n"
        "    return steep.models.build(f'wrn-{beside_it.DEPTH}-{Plan().width}', num_classes, in_channels=1)\n"
    )
    before = list(sys.path)
    words = ["--weights", weights, "--images", folder, "--method", "source", "--out", tmp_path / "a.csv"]
    assert main(["predict", "--model", f"{tmp_path / 'mine.py'}:net", *map(str, words)]) == 0, capsys.readouterr().err
    assert sys.path == before
