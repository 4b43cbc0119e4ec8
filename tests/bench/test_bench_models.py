"""The bench with a model from elsewhere: its own size and normalisation, and which weights a row is of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from steep import models
from steep.bench import cell as one
from steep.bench.recipe import plan
from steep.bench.rows import read
from steep.cli import main
from steep.data import load, to_device
from steep.errors import CheckpointError, InputError
from steep.models import checkpoints

FACTORY = """
import torch
from steep import models

def make(num_classes=10):
    torch.manual_seed({seed})
    model = models.build("wrn-10-1", num_classes, in_channels=1)
    model.default_cfg = {{"mean": (0.3,), "std": (0.5,), "input_size": (1, 10, 10)}}
    return model
"""


@pytest.fixture
def factory(tmp_path) -> str:
    (tmp_path / "net.py").write_text(FACTORY.format(seed=3))
    return f"{tmp_path}/net.py:make"


def small(**more):
    return plan("digits", only=["method=source,bn", "shift=fog"], seeds="0", limit=60, **more)


def expected_logits(size: int = 10) -> torch.Tensor:
    """The same model, made by hand."""
    torch.manual_seed(3)
    model = models.build("wrn-10-1", 10, in_channels=1).eval()
    fog = load("digits-c", corruption="fog", severity=5, limit=60, size=size, mix=True)
    with torch.no_grad():
        return model((to_device(fog.images) - 0.3) / 0.5), torch.from_numpy(fog.labels)


def test_the_models_own_crop_is_in_the_key_and_a_recipe_overrules_it(tmp_path):
    config = '"input_size": (3, 20, 20), "crop_pct": 0.8, "interpolation": "bicubic"'
    code = FACTORY.format(seed=3).replace('"input_size": (1, 10, 10)', config).replace("in_channels=1", "in_channels=3")
    (tmp_path / "net.py").write_text(code)
    recipe = (
        'kind = "bench"\ndata = "{}"\nmodel = "net.py:make"\nweights = "pretrained"\n{}\n[methods]\nsource = {{}}\n'
    )
    for data, more, expected in (
        ("folder", "", (20, 0.8, "bicubic")),
        ("folder", "crop = 0.5", (20, 0.5, "bicubic")),
        ("digits", "", (20, None, None)),  # its pictures are squares already
    ):
        (tmp_path / "own.toml").write_text(recipe.format(data, more))
        (cell,) = plan(str(tmp_path / "own.toml")).cells
        assert (cell.size, cell.crop, cell.interpolation) == expected


def test_the_row_is_of_the_model_at_its_own_size_and_says_which_weights(factory, tmp_path):
    command = ["bench", "digits", "--model", factory, "--only", "method=source", "--only", "shift=fog", "--limit", "60"]
    assert main([*command, "--device", "cpu", "--store", str(tmp_path / "rows")]) == 0
    (row,) = (row for row in read(tmp_path / "rows") if row["spec"]["shift"] == "fog")
    logits, labels = expected_logits()
    assert row["accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    assert row["energy_after"] == pytest.approx(-logits.logsumexp(1).mean().item(), abs=1e-4)
    spec = row["spec"]
    assert (spec["model"], spec["weights"], spec["size"]) == ("net.py:make", "pretrained", 10)
    assert len(spec["weights_sha256"]) == 64
    assert str(tmp_path) not in json.dumps(row)


def test_the_key_follows_the_weights_and_not_the_folder(factory, tmp_path):
    key = small(model=factory).cells[0].key()
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(tmp_path / "net.py", tmp_path / "elsewhere")
    assert small(model=f"{tmp_path}/elsewhere/net.py:make").cells[0].key() == key
    (tmp_path / "net.py").write_text(FACTORY.format(seed=4))
    assert small(model=factory).cells[0].key() != key


def test_weights_that_changed_since_the_plan_are_refused(factory, tmp_path):
    grid = small(model=factory)
    (tmp_path / "net.py").write_text(FACTORY.format(seed=4))
    with pytest.raises(CheckpointError, match=r"weights of net.py:make: expected sha256"):
        one.run(grid.cells[0], grid.sources(None))


def test_a_recipe_names_a_factory_beside_it_and_a_file_of_weights(factory, tmp_path, monkeypatch):
    torch.manual_seed(3)
    trained = checkpoints.save(models.build("wrn-10-1", 10, in_channels=1), tmp_path / "mine.safetensors")
    lines = ['kind = "bench"', 'data = "digits-c"', 'model = "net.py:make"', 'weights = "mine"', 'shifts = "fog"']
    (tmp_path / "own.toml").write_text("\n".join([*lines, "limit = 60", "size = 8", "[methods]", "source = {}"]))
    monkeypatch.chdir("/")
    grid = plan(str(tmp_path / "own.toml"), weights=tmp_path)
    assert (grid.cells[0].weights, grid.cells[0].size) == ("mine", 8)  # what the recipe says comes before the model's
    row = one.run(grid.cells[0], grid.sources(None))
    logits, labels = expected_logits(size=8)
    assert row["accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item())
    by_option = small(model=factory, weights=trained).cells[0]
    assert (by_option.weights, by_option.size) == ("mine", 10)


def test_a_model_of_other_classes_is_refused_with_the_way_out(factory, tmp_path):
    Path(tmp_path / "net.py").write_text(FACTORY.format(seed=3).replace("num_classes=10", "num_classes=7"))
    grid = small(model=factory)
    with pytest.raises(InputError, match=r"expected 10 answers, the classes of digits-c, got 7. Fine-tune it"):
        one.run(grid.cells[0], grid.sources(None))


def test_dry_run_of_a_model_that_is_not_here(capsys):
    assert main(["bench", "digits", "--model", "timm:nothing", "--dry-run"]) == 0
    assert "no estimate of the time for timm:nothing" in capsys.readouterr().out
    assert main(["bench", "digits", "--model", "timm:nothing"]) == 2
