"""`steep demo` as a person calls it, on the bundled digits: no network is touched."""

from __future__ import annotations

import re
import time
import webbrowser
from pathlib import Path
from typing import Any

import pytest

from steep import recipes
from steep.bench import cell as one
from steep.bench import local
from steep.bench.local import Tick
from steep.bench.recipe import plan
from steep.bench.rows import encode, read
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.cli import demo, main
from steep.errors import InputError
from steep.training import Progress, TrainingSpec, train

SMALL = ["--limit", "20", "--device", "cpu"]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same demo in seconds: a model that has learnt less, fewer draws, and nothing fetched."""
    real = TrainingSpec.from_recipe
    monkeypatch.setattr(TrainingSpec, "from_recipe", lambda name: real(name, {"epochs": 3, "warmup_epochs": 1}))
    monkeypatch.setenv("STEEP_OFFLINE", "1")
    monkeypatch.setenv("STEEP_DATA", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first demo wrote."""
    return tmp_path_factory.mktemp("demo")


def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave one shift of the grid."""
    monkeypatch.setattr(
        "steep.cli.demo.plan",
        lambda name, **options: plan(name, **{**options, "only": ["setting=paper", "shift=contrast", "seed=0"]}),
    )


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    return output.out, output.err


def test_offline_runs_on_digits_and_writes_rows_and_page(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--offline", "--out", str(first), *SMALL]) == 0
    out, err = printed(capsys)
    assert err.splitlines()[0] == "running on scikit-learn's bundled digits, as asked (--offline)"
    rows = read(first / "digits")
    methods = recipes.read("digits")["demo"]
    assert {row["spec"]["method"] for row in rows} == set(methods)
    assert {row["n"] for row in rows} == {20}
    page = first / "digits" / "report.html"
    assert str(page) in out
    text = page.read_text(encoding="utf-8")
    for name in methods:
        assert f"\n{name} " in out
        assert f">{name}</th>" in text
    strip = text[text.index('<div class="strips">') :]
    for shift in ("clean", "gaussian noise, severity 5", "contrast, severity 5"):
        assert f'<figcaption>{shift}</figcaption><img src="data:image/png;base64,' in strip


def test_the_last_sentence_is_made_of_the_rows(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--offline", "--out", str(first), *SMALL]) == 0
    out, _ = printed(capsys)
    rows = [row for row in read(first / "digits") if row["spec"]["shift"] != "clean"]
    means = {
        method: sum(values) / len(values)
        for method in recipes.read("digits")["demo"]
        if (values := [row["accuracy"] for row in rows if row["spec"]["method"] == method])
    }
    before = means.pop("source")
    sentence = next(line for line in out.splitlines() if line.startswith("Adapting "))
    assert re.findall(r"(\d+) %", sentence)[0] == f"{100 * before:.0f}"
    assert re.findall(r"(\d+) %", sentence)[1] == f"{100 * max(means.values()):.0f}"


def test_all_runs_every_method_of_the_recipe() -> None:
    few, every = demo._plan("demo", False, 20), demo._plan("demo", True, 20)
    assert {cell.method for cell in few.cells} == set(recipes.read("demo")["demo"])
    assert {cell.method for cell in every.cells} == set(recipes.read("demo")["methods"])
    assert len(few.cells) < len(every.cells)
    assert few.cells[0].method == "source"


def test_open_shows_the_page(first: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert main(["demo", "--offline", "--open", "--out", str(first), *SMALL]) == 0
    assert opened == [(first / "digits" / "report.html").as_uri()]


def test_the_second_run_prints_what_is_stored(
    first: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["demo", "--offline", "--out", str(first), *SMALL]) == 0  # nothing to do, or, run alone, everything
    capsys.readouterr()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(one, "run", never)
    store = first / "digits" / "rows.jsonl"
    before = store.read_bytes()
    begun = time.monotonic()
    assert main(["demo", "--offline", "--out", str(first), *SMALL]) == 0
    assert time.monotonic() - begun < 10
    out, err = printed(capsys)
    assert "\ntent " in out
    assert "cells" not in err
    assert store.read_bytes() == before


def test_without_network_it_falls_back_in_one_line_and_exits_0(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(first), *SMALL]) == 0
    _, err = printed(capsys)
    fell = [line for line in err.splitlines() if "digits" in line]
    assert len(fell) == 1
    assert fell[0].startswith("CIFAR-10 cannot be fetched, running on scikit-learn's bundled digits instead (")
    assert read(first / "digits")
    assert not (first / "cifar10").exists()


def test_what_is_stored_of_cifar10_needs_neither_data_nor_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = demo._plan("demo", False, 20).cells
    rows = [
        {
            "schema": 1,
            "key": cell.key(),
            "spec": cell.to_json(),
            "accuracy": 0.5 + 0.01 * (cell.method == "tent"),
            "n": 20,
        }
        for cell in cells
    ]
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "rows.jsonl").write_bytes(b"".join(map(encode, rows)))
    assert main(["demo", "--out", str(tmp_path), *SMALL]) == 0
    out, err = printed(capsys)
    assert "CIFAR-10-C" in out
    assert "51.0" in out
    assert "fetch" not in err
    assert not (tmp_path / "digits").exists()


def test_a_cell_that_fails_is_named_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fewer(monkeypatch)
    run = one.run

    def fails(cell: Any, *rest: Any) -> Any:
        if cell.method == "tent":
            raise InputError("no [bold]sharpness[/bold] here")
        return run(cell, *rest)

    monkeypatch.setattr(one, "run", fails)
    assert main(["demo", "--offline", "--out", str(tmp_path), *SMALL]) == 1
    out, err = printed(capsys)
    assert "tent contrast 5: InputError: no [bold]sharpness[/bold] here" in err
    assert "\nshot " in out
    assert "\ntent " not in out


def test_a_slip_is_said_before_anything_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "d"), "--device", "abacus"]) == 2
    assert "--device: expected one that works here" in printed(capsys)[1]
    assert not (tmp_path / "d").exists()


def test_ctrl_c_says_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, count = one.run, 0

    def stops(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(one, "run", stops)
    assert main(["demo", "--offline", "--out", str(tmp_path), *SMALL]) == 130
    store = tmp_path / "digits" / "rows.jsonl"
    assert f"stopped; 2 of 36 cells are in {store}, the same command goes on from there" in printed(capsys)[1]
    assert len(read(store)) == 2


def test_a_demo_stopped_while_it_trains_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "digits" / "digits.safetensors"

    def stop(now: Progress) -> None:
        if now.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(TrainingSpec.from_recipe("train-digits"), weights, progress=stop)
    assert [file.name for file in weights.parent.iterdir()] == ["digits.checkpoint.safetensors"]
    fewer(monkeypatch)
    assert main(["demo", "--offline", "--out", str(tmp_path), *SMALL]) == 0
    assert weights.is_file()


def test_no_time_is_promised_before_a_tenth_is_done(tmp_path: Path) -> None:
    shared = {"data": "digits", "shift": "clean", "model": "wrn-10-1", "weights": "untrained", "limit": 20}
    cells = [Cell(**shared, method="source", seed=seed) for seed in range(20)]
    ticks: list[Tick] = []
    with Store(tmp_path) as store:
        local.run(cells, store, progress=ticks.append)
    early = [tick for tick in ticks if tick.done < 2]
    assert early[0].done == 0
    assert all(tick.seconds_left is None for tick in early if tick.done + tick.share < 2)
    assert all(tick.seconds_left is not None for tick in ticks if tick.done >= 2)
