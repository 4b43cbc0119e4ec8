"""`steep bench`, `report`, `methods`, `models`, `recipes` as a person calls them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from torch.nn.functional import cross_entropy

import steep
from steep import recipes
from steep.bench.rows import SCHEMA, read
from steep.cli import main
from steep.data import load
from steep.models import checkpoints

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A digits model that has learnt something, in a few seconds."""
    data = load("digits", "train")
    x = torch.from_numpy(data.images).permute(0, 3, 1, 2) / 255.0
    y = torch.from_numpy(data.labels)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = steep.models.build("wrn-10-1", 10, in_channels=1).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        for _ in range(3):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
    return checkpoints.save(model.eval(), tmp_path_factory.mktemp("weights") / "digits.safetensors")


@pytest.mark.parametrize(
    ("recipe", "cells", "segments"),
    [
        ("digits", 45, 0),
        ("digits-continual", 7, 5),
        ("digits-gradual", 7, 10),
        ("digits-mixed", 7, 5),
        ("digits-label-shift", 14, 0),
        ("digits-batch-size-1", 14, 0),
    ],
)
def test_every_protocol_runs_for_real_on_digits(
    recipe: str, cells: int, segments: int, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "run"
    command = ["bench", recipe, "--store", str(store), "--weights", str(weights), "--device", "cpu"]
    command += ["--set", "tea.sgld_steps=2", "--set", "tea.buffer_size=200", "--limit", "15"]
    command += ["--only", "seed=0", "--only", "shift=gaussian_noise,contrast,clean"] if recipe == "digits" else []
    assert main(command) == 0
    rows = read(store)
    assert len(rows) == cells
    assert {len(row["segments"]) for row in rows} == {segments}
    assert all(row["nonfinite"] == 0 and row["n"] > 0 for row in rows)
    best = max(row["accuracy"] for row in rows if row["spec"]["method"] == "bn")
    assert best > 0.5  # the model has learnt, and the pieces fit together
    assert main(command) == 0  # again: everything is there
    assert len(read(store)) == cells
    capsys.readouterr()
    assert main(["report", str(store)]) == 0
    printed = capsys.readouterr().out
    assert f"protocol {rows[0]['spec']['protocol']}" in printed
    assert "tea" in printed
    assert "first 15 images" in printed
    assert "a part of a bench" not in printed


def test_dry_run_shows_the_grid_and_an_estimate_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "digits", "--dry-run", "--root", str(tmp_path), "--device", "cpu"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "102 cells, 0 of them" in printed
    assert "weights digits: not found; make them: steep train train-digits" in printed
    assert re.search(r"about \S+ (s|min|h) on cpu", printed)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_of_a_large_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "table-3-pacs", "--dry-run", "--root", str(tmp_path), "--device", "cpu"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "120 cells" in printed
    assert "steep train train-pacs-sketch-resnet-18-bn" in printed


def failing(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main(list(command)) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return " ".join(printed.err.split())


def test_bad_input_is_one_line_with_the_fix_and_loses_nothing(
    tmp_path: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "run"
    good = ["bench", "digits", "--store", str(store), "--limit", "10", "--only", "method=bn", "--only", "shift=fog"]
    assert main([*good, "--weights", str(weights)]) == 0
    before = (store / "rows.jsonl").read_bytes()

    wrong = checkpoints.save(steep.models.build("wrn-10-1", 7, in_channels=1), tmp_path / "wrong.safetensors")
    printed = failing(capsys, *good, "--weights", str(wrong))
    assert "does not fit WideResNet" in printed
    assert "fc.weight (7, 64) for (10, 64)" in printed

    printed = failing(
        capsys, "bench", "clean-cifar10", "--store", str(store), "--root", str(tmp_path), "--set", "weights=untrained"
    )
    assert "steep data fetch cifar10" in printed

    printed = failing(capsys, "bench", "digits", "--engine", "slurm", "--weights", str(weights))
    assert "unknown engine 'slurm'" in printed
    assert "Known: local, ray" in printed

    printed = failing(capsys, *good, "--weights", str(weights), "--device", "abacus")
    assert "--device: expected one that works here, such as cpu, got 'abacus'" in printed

    printed = failing(capsys, *good, "--weights", str(weights), "--engine", "ray", "--device", "cuda")
    assert "--device cuda: the ray engine takes none" in printed
    assert "--gpus" in printed
    printed = failing(capsys, *good, "--weights", str(weights), "--gpus", "0.5")
    assert "--gpus 0.5: is for --engine ray" in printed
    printed = failing(capsys, *good, "--weights", str(weights), "--engine", "ray", "--compile")
    assert "--compile: is for one process on one device. Leave it out" in printed

    (tmp_path / "mine.toml").write_text('kind = "bench"\nsevrities = [5]\n', encoding="utf-8")
    printed = failing(capsys, "bench", str(tmp_path / "mine.toml"))
    assert "unknown key of recipe mine 'sevrities': did you mean 'severities'?" in printed
    assert "batch_size" in printed

    assert (store / "rows.jsonl").read_bytes() == before
    row = json.loads(before)
    (store / "rows.jsonl").write_text(json.dumps({**row, "schema": SCHEMA + 1}) + "\n", encoding="utf-8")
    for command in ([*good, "--weights", str(weights)], ["report", str(store)]):
        assert "written by a newer steep" in failing(capsys, *command)

    assert "no such store" in failing(capsys, "report", str(tmp_path / "nothing"))
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    assert "expected at least one row" in failing(capsys, "report", str(tmp_path / "empty.jsonl"))
    assert "unknown format 'word'" in failing(capsys, "report", str(tmp_path / "empty.jsonl"), "--format", "word")


def test_a_cell_that_fails_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'kind = "bench"\ndata = "digits-c"\nmodel = "resnet-18-gn"\nweights = "untrained"\nsize = 8\nlimit = 4\n'
        'shifts = ["fog"]\n[methods]\nbn = {}\ntent = {}\n',
        encoding="utf-8",
    )
    assert main(["bench", str(recipe), "--store", str(tmp_path / "run"), "--device", "cpu"]) == 1
    errors = " ".join(capsys.readouterr().err.split())
    assert "1 cells run, 0 there already, 1 failed" in errors
    assert "bn fog 5: NothingToAdaptError" in errors
    assert [row["spec"]["method"] for row in read(tmp_path / "run")] == ["tent"]
    assert main(["report", str(tmp_path / "run")]) == 0
    assert "a part of a bench: 1 of 2 cells have run so far" in capsys.readouterr().out


def test_ctrl_c_ends_with_what_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "run"
    words = [
        "bench",
        "digits",
        "--store",
        str(store),
        "--set",
        "weights=untrained",
        "--limit",
        "100",
        "--device",
        "cpu",
    ]
    program = "import sys; from steep.cli import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as bench:
        until = time.monotonic() + 60
        while not (store / "rows.jsonl").exists() or len(read(store)) < 3:
            assert time.monotonic() < until
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        _, output = bench.communicate(timeout=30)
    kept = len(read(store))
    assert bench.returncode == 130
    assert 3 <= kept < 102
    assert f"stopped; {kept} of 102 cells are in" in " ".join(output.split())
    assert "Traceback" not in output
    for form in ("terminal", "markdown", "latex", "html"):
        assert main(["report", str(store), "--format", form]) == 0
        printed = capsys.readouterr().out
        text = (store / "report.html").read_text(encoding="utf-8") if form == "html" else printed
        assert f"a part of a bench: {kept} of 102 cells have run so far" in " ".join(text.split())


@pytest.mark.parametrize("address", ["ray://127.0.0.1:9", "127.0.0.1:9", "auto", "nowhere"])
def test_an_unreachable_cluster_is_said_within_seconds(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs: pip install '.[ray]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    begun = time.monotonic()
    words = ["bench", "digits", "--store", str(tmp_path), "--set", "weights=untrained", "--engine", "ray"]
    printed = failing(capsys, *words, "--address", address)
    assert time.monotonic() - begun < 20
    assert "engine ray" in printed
    assert address in printed
    assert "local" in printed
    assert (tmp_path / "rows.jsonl").read_bytes() == b""


def test_without_ray_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["bench", "digits", "--store", str(tmp_path), "--set", "weights=untrained", "--engine", "ray"]
    assert "pip install '.[ray]'" in failing(capsys, *words)


def test_the_catalogues_fit_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (["methods"], ["methods", "tea"], ["methods", "sar"], ["models"], ["recipes"]):
        assert main(words) == 0
        assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= 80


def test_the_catalogues(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["methods"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    listed = {words[0]: words[1].strip() for words in lines if len(words) == 2}
    for name, method in steep.METHODS.items():
        assert listed[name] == method.__doc__.splitlines()[0]
    assert main(["methods", "tea"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^sgld_steps +20 *$", text, re.MULTILINE)
    assert "Yuan et al., TEA" in text
    assert "tent" not in text
    assert main(["methods", "sar"]) == 0
    assert re.search(r"^margin_classes .*\(tuned: None\)", capsys.readouterr().out, re.MULTILINE)
    assert "did you mean 'tea'" in failing(capsys, "methods", "tae")
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert "wrn-28-10" in text
    assert "resnet-50-gn" in text


def test_the_recipes_are_listed_once_under_what_they_are_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert sorted(name for name in starts if name in recipes.names()) == recipes.names()
    assert lines[0] == "First steps"
    assert main(["recipes", "--kind", "bench"]) == 0
    text = capsys.readouterr().out
    assert "table-1-cifar10" in text
    assert "train-digits" not in text
    assert "unknown kind" in failing(capsys, "recipes", "--kind", "soup")


def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither markup nor emoji nor a line break: a path can be copied, whatever it holds."""
    place = tmp_path / "a:two:b[red]" / ("long" * 30)
    words = ["--set", "weights=untrained", "--only", "method=bn", "--only", "shift=fog", "--limit", "10"]
    assert main(["bench", "digits", "--store", str(place), "--device", "cpu", *words]) == 0
    assert f"to see them: steep report {place / 'rows.jsonl'}\n" in capsys.readouterr().err
    assert main(["bench", "digits", "--store", str(place), "--device", "cpu", "--dry-run", *words]) == 0
    assert f"1 of them in {place / 'rows.jsonl'} already" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["bench", "report", "methods", "models", "recipes", "demo", "train", "predict"])
def test_help_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"Example: steep {command}" in " ".join(capsys.readouterr().out.split())
