"""Adapters that serve one cell after another: rows as of new ones, made once where they may be shared."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steep import provenance
from steep.bench import adapters, local, streaming
from steep.bench import cell as one
from steep.bench.adapters import Adapters
from steep.bench.recipe import plan
from steep.bench.rows import read, stable
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.core.adapter import Adapter
from steep.data import ImageSet
from steep.errors import FallbackWarning

SMALL = ["tea.sgld_steps=2", "tea.buffer_size=200", "weights=untrained", "batch_size=40"]


def grid(*only: str, seeds: str | None = None) -> tuple[Cell, ...]:
    return plan("digits", sets=SMALL, only=list(only), limit=80, seeds=seeds).cells


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that adapters were made for."""
    names: list[str] = []
    real = adapters.adapt

    def counted(model: object, method: str, **options: object) -> object:
        names.append(method)
        return real(model, method, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(adapters, "adapt", counted)
    return names


@pytest.mark.parametrize("method", ["dua", "tent", "eata", "sar", "tea"])
def test_rows_do_not_depend_on_whether_an_adapter_is_new(method: str, made: list[str]) -> None:
    cells = grid(f"method={method}", "setting=paper", "seed=0", "shift=fog,contrast,clean")
    assert len(cells) == 3
    sharing = Adapters(keep=True)
    shared = [one.run(cell, Sources(), adapters=sharing) for cell in cells]
    assert made == [method]
    assert [stable(row) for row in shared] == [stable(one.run(cell, Sources())) for cell in cells]


def test_another_method_seed_or_precision_gets_its_own(made: list[str]) -> None:
    sharing = Adapters(keep=True)
    cells = grid("method=tent,tea", "setting=paper", "shift=fog", seeds="0,1")
    for cell in (*cells, replace(cells[-1], precision="bfloat16")):
        one.run(cell, Sources(), adapters=sharing)
    assert made == ["tent", "tent", "tea", "tea", "tea"]


class Trainless(Sources):
    """No training images: eata warns as it is made."""

    def train(self, cell: Cell) -> ImageSet | None:
        """Give none."""
        return None


def test_what_an_adapter_warns_of_once_is_in_all_its_rows(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cells = grid("method=eata", "setting=paper", "seed=0", "shift=fog,contrast,clean")
    text = "whatever its words are"
    real, known = Adapter.__call__, set[int]()

    def once(self: Adapter, x: Tensor) -> Tensor:
        if id(self) not in known and len(made) == 1:
            known.add(id(self))
            warnings.warn(text, FallbackWarning, stacklevel=2)
        return real(self, x)

    monkeypatch.setattr(Adapter, "__call__", once)
    sharing = Adapters(keep=True)
    rows = [one.run(cell, Trainless(), adapters=sharing) for cell in cells]
    assert made == ["eata"]
    assert len({tuple(row["notes"]) for row in rows}) == 1
    missing, acts_as_eta, recorded = rows[-1]["notes"]
    assert "no train split of digits" in missing
    assert "acts as eta" in acts_as_eta
    assert recorded == text
    assert one.run(cells[1], Trainless())["notes"] == [missing, acts_as_eta]


def test_memory_that_an_adapter_goes_on_holding_counts_in_later_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    took = iter([5, 3, 7, 2])  # a recorded step is replayed without taking memory anew
    monkeypatch.setattr(provenance, "peak_memory", lambda device: {"bytes": next(took), "of": "tensors"})
    sharing = Adapters(keep=True)
    cells = grid("method=bn,tent", "setting=paper", "seed=0", "shift=fog,contrast")
    cells = sorted(cells, key=lambda cell: cell.method)
    assert [one.run(cell, Sources(), adapters=sharing)["peak_memory"]["bytes"] for cell in cells] == [5, 5, 7, 7]


def test_an_adapter_whose_cell_fails_is_not_lent_again(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = Adapters(keep=True)
    first, second = grid("method=tent", "setting=paper", "seed=0", "shift=fog,contrast")

    def stop(done: int, total: int, accuracy: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(streaming, "_PROGRESS_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        one.run(first, Sources(), on_progress=stop, adapters=sharing)
    row = one.run(second, Sources(), adapters=sharing)
    assert made == ["tent", "tent"]
    assert stable(row) == stable(one.run(second, Sources()))


def test_a_compiled_bench_makes_one_adapter_for_each_method_and_seed(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda work, **how: compiled.append(work) or work)  # compiling is torch's
    cells = grid("method=source,bn", "setting=paper", "shift=fog,contrast", "seed=0")
    with Store(tmp_path / "a") as store:
        assert local.run(cells, store, compile=True).failed == []
    assert made == ["source", "bn"]
    assert len(compiled) == 2
    with Store(tmp_path / "b") as store:
        local.run(cells, store)
    assert made == ["source", "bn", *(cell.method for cell in cells)]
    rows = read(tmp_path / "a")
    assert [row["env"]["compile"] for row in rows] == [True] * 4
    plain = {row["key"]: row for row in read(tmp_path / "b")}
    assert {row["key"]: stable(row) for row in rows} == {key: stable(row) for key, row in plain.items()}


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["tent", "eata", "tea"])
def test_on_a_gpu_rows_do_not_depend_on_whether_an_adapter_is_new(method: str, tmp_path: Path) -> None:
    cells = grid(f"method={method}", "setting=paper", "seed=0", "shift=fog,contrast,clean")
    with Store(tmp_path / "shared") as store:
        assert local.run(cells, store, device="cuda").failed == []
    for row in read(tmp_path / "shared"):
        (cell,) = (cell for cell in cells if cell.key() == row["key"])
        new = one.run(cell, Sources(), "cuda")
        assert row["accuracy"] == new["accuracy"]
        assert row["energy_after"] == pytest.approx(new["energy_after"], rel=1e-3)
