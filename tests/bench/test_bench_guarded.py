"""What must not be lost or mistaken: rows on a full disk, steps a guard undid, energies of other images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steep import user_code
from steep.bench import cell as one
from steep.bench import local, ray, streaming
from steep.bench.local import Board, Tick
from steep.bench.recipe import plan
from steep.bench.rows import StoreError, read
from steep.bench.sources import Sources
from steep.bench.spec import Cell
from steep.bench.store import Store
from steep.core.run.runner import Runner
from steep.data import ImageSet
from steep.errors import InputError
from steep.methods import METHODS


def small(**changes: Any) -> Cell:
    (cell,) = plan(
        "digits",
        sets=["weights=untrained", "batch_size=20"],
        only=["method=tent", "shift=fog", "setting=paper"],
        limit=60,
    ).cells
    return replace(cell, **changes)


def test_a_row_that_cannot_be_stored_ends_the_bench_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [small(seed=seed) for seed in range(4)]
    ran: list[int] = []
    real = one.run

    def counts(cell: Cell, *rest: Any) -> Any:
        ran.append(cell.seed)
        return real(cell, *rest)

    monkeypatch.setattr(one, "run", counts)
    with Store(tmp_path) as store:
        append = store.append

        def full(row: Any) -> None:
            if row["spec"]["seed"] == 1:
                raise StoreError("rows.jsonl: the row could not be written (No space left on device)")
            append(row)

        monkeypatch.setattr(store, "append", full)
        with pytest.raises(StoreError, match="No space left"):
            local.run(cells, store)
    assert ran == [0, 1]  # not hours of cells whose rows go nowhere
    assert [row["spec"]["seed"] for row in read(tmp_path)] == [0]


@pytest.mark.parametrize("episodic", [False, True])
def test_a_row_says_how_many_steps_the_guard_undid(episodic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runner._judge
    judged = 0

    def harsh(self: Runner, *args: Any) -> Any:
        nonlocal judged
        judged += 1
        verdict = real(self, *args)
        return verdict | True if judged % 2 else verdict  # every second step is called harmful

    monkeypatch.setattr(Runner, "_judge", harsh)
    cell = small(guard="skip", episodic=episodic)
    assert one.run(cell, Sources())["undone"] == 2  # steps 1 and 3 of three
    assert judged == 3


def test_the_count_goes_on_over_a_reset_between_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runner._judge
    monkeypatch.setattr(Runner, "_judge", lambda self, *args: real(self, *args) | True)
    (cell,) = plan("digits-continual", sets=["weights=untrained"], only=["method=tent"], limit=20).cells
    stream = streaming.stream
    monkeypatch.setattr(streaming, "stream", lambda *a, **k: [replace(part, reset=True) for part in stream(*a, **k)])
    row = one.run(replace(cell, guard="skip"), Sources())
    assert row["undone"] == len(row["segments"]) == 5


def test_without_a_guard_a_row_says_nothing_of_it() -> None:
    assert "undone" not in one.run(small(), Sources())
    healthy = one.run(small(guard="skip"), Sources())
    assert healthy["undone"] == 0
    assert healthy["spec"]["guard"] == "skip"


def test_the_energy_before_is_that_of_the_same_images(tmp_path: Path) -> None:
    """One name, two sets: what was kept of the first must not be taken for the second."""
    draw = np.random.default_rng(0)
    pairs = []
    for level in (40, 250):
        file = tmp_path / f"{level}.npz"
        np.savez(file, images=draw.integers(level - 40, level, (40, 16, 16, 3), np.uint8), labels=np.arange(40) % 10)
        cell = Cell(data="arrays", shift="clean", model="wrn-10-1", weights="untrained", method="bn", batch_size=20)
        source = replace(cell, method="source", predict=METHODS["source"].predicts)
        disk = Sources(file)
        pairs.append((one.run(cell, disk)["energy_before"], one.run(source, disk)["energy_after"]))
    assert all(before == pytest.approx(source_energy, rel=1e-6) for before, source_energy in pairs)
    assert pairs[0][0] != pairs[1][0]


def test_a_cell_counts_as_done_when_its_row_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PROGRESS_EVERY", 0.0)  # a tick for every batch, the last one too
    ticks: list[Tick] = []
    with Store(tmp_path) as store:
        local.run([small(), small(seed=1)], store, progress=ticks.append)
    watched = [tick for tick in ticks if tick.accuracy is not None]
    assert [tick.done for tick in watched if tick.share >= 1] == [1, 2]
    assert len(watched) == 2 * (3 + 1)  # three batches and a row each


def test_a_cell_that_cannot_be_sent_fails_alone_as_in_the_local_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "OPENED", {})  # what other tests have opened would be sent too
    shipped: list[str] = []

    class Cluster:
        """As much of Ray as sending takes."""

        def remote(self, *sent: Any) -> Any:
            return object() if len(sent) > 1 else self

        def options(self, **_: Any) -> Cluster:
            return self

        def cluster_resources(self) -> dict[str, float]:
            return {"CPU": 2.0}

        def put(self, thing: Any) -> Any:
            shipped.append(type(thing).__name__)
            return thing

    class Half(Sources):
        def images(self, cell: Cell, shift: str, severity: int) -> ImageSet:
            if cell.seed == 1:
                raise InputError("size: expected 1 or more")
            return super().images(cell, shift, severity)

    cells = [small(seed=seed) for seed in range(3)]
    with Store(tmp_path) as store:
        board = Board(cells, store)
        driver = ray._Driver(Cluster(), board, Half(), cpus=1.0, gpus=0.0, retries=3)
        driver.fill()
        assert [cells.index(cell) for cell, _ in board.outcome.failed] == [1]
        assert set(driver.flying.values()) == {cells[0].key(), cells[2].key()}
    assert shipped == ["ImageSet", "WideResNet"]  # for both cells: what they share goes to the cluster once
