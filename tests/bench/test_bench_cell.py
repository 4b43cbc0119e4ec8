"""One cell: its numbers against an independent loop, its protocols, its edge cases."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

import steep
from steep.bench import adapters, streaming
from steep.bench import cell as one
from steep.bench.adapters import precision
from steep.bench.measure import metrics
from steep.bench.recipe import plan
from steep.bench.rows import Row, unpacked
from steep.bench.sources import Sources
from steep.bench.spec import Cell, as_hyper
from steep.core.adapter import Adapter
from steep.data import ImageSet, batches, load
from steep.errors import DataError, InputError
from steep.methods import adapt


def cells(recipe: str = "digits", *only: str, limit: int = 80, sets: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    small = ("tea.sgld_steps=2", "tea.buffer_size=200", "weights=untrained")
    return plan(recipe, sets=[*small, *sets], only=list(only), limit=limit).cells


def only(recipe: str, *chosen: str, sets: tuple[str, ...] = ()) -> Cell:
    (cell,) = cells(recipe, *chosen, sets=sets)
    return cell


def by_hand(cell: Cell, name: str, severity: int) -> tuple[Tensor, Tensor]:
    """The bare loop everyone writes."""
    clean = name == "clean"
    data = load("digits", limit=80) if clean else load("digits-c", corruption=name, severity=severity, limit=80)
    torch.manual_seed(0)
    model = steep.models.build("wrn-10-1", 10, in_channels=1).eval()
    adapter = steep.adapt(model, cell.method, seed=cell.seed, predict=cell.predict, **dict(cell.hyper))
    x = torch.from_numpy(np.array(data.images)).permute(0, 3, 1, 2) / 255.0
    size = cell.batch_size
    return torch.cat([adapter(x[i : i + size]) for i in range(0, len(x), size)]), torch.from_numpy(data.labels)


@pytest.mark.parametrize("method", ["source", "tent", "tea"])
def test_row_equals_the_bare_loop(method: str) -> None:
    cell = only("digits", f"method={method}", "shift=fog", "seed=0", sets=("batch_size=40",))
    row = one.run(cell, Sources())
    logits, labels = by_hand(cell, "fog", 5)
    p = logits.double().softmax(dim=1)
    picked = p[torch.arange(len(labels)), labels]
    right = (logits.argmax(1) == labels).double().mean()
    source, _ = by_hand(replace(cell, method="source", hyper=(), predict="before"), "fog", 5)
    assert row["accuracy"] == pytest.approx(float(right))
    assert row["error"] == pytest.approx(1 - float(right))
    assert row["loss"] == row["nll"] == pytest.approx(float(-picked.log().mean()))
    assert row["brier"] == pytest.approx(float((p**2).sum(1).mean() - 2 * picked.mean() + 1))
    assert row["energy_after"] == pytest.approx(float(-logits.double().logsumexp(1).mean()), rel=1e-6)
    assert row["energy_before"] == pytest.approx(float(-source.double().logsumexp(1).mean()), rel=1e-6)
    for norm, name in (("l1", "ece"), ("max", "mce")):
        theirs = multiclass_calibration_error(p.float(), labels, 10, n_bins=15, norm=norm)  # type: ignore[arg-type]
        assert row[name] == pytest.approx(float(theirs), abs=1e-5)
    assert row["n"] == 80 == sum(row["per_class"]["count"]) == sum(row["reliability"]["counts"])
    assert sum(row["per_class"]["correct"]) == round(80 * row["accuracy"])
    bits = np.unpackbits(np.frombuffer(base64.b64decode(row["right"]), np.uint8))
    assert bits.tolist() == (logits.argmax(1) == labels).int().tolist()
    assert len(row["reliability"]["counts"]) == 10
    assert len(row["calibration"]["counts"]) == 15
    assert row["key"] == cell.key()
    assert Cell.from_json(row["spec"]) == cell
    assert row["images_per_s"] == pytest.approx(80 / row["seconds"])
    assert row["env"]["versions"]["torch"] == torch.__version__
    assert row["env"]["device"].startswith("cpu")
    assert row["started"] < row["finished"]
    assert row["peak_memory"]["bytes"] > 0


def test_calibration_is_pooled_not_a_mean_over_batches() -> None:
    cell = only("digits", "method=bn", "shift=fog", sets=("batch_size=10",))
    logits, labels = by_hand(cell, "fog", 5)
    p = logits.softmax(1)
    batches = [multiclass_calibration_error(p[i : i + 10], labels[i : i + 10], 10, n_bins=15) for i in range(0, 80, 10)]
    row = one.run(cell, Sources())
    assert row["ece"] < float(torch.stack(batches).mean()) - 0.02


def test_before_and_after_are_two_numbers_for_one_method() -> None:
    after = only("digits", "method=tent", "shift=contrast", sets=("predict=after", "tent.lr=0.1", "batch_size=20"))
    before = only("digits", "method=tent", "shift=contrast", sets=("predict=before", "tent.lr=0.1", "batch_size=20"))
    assert after.key() != before.key()
    assert one.run(after, Sources())["loss"] != one.run(before, Sources())["loss"]


def test_eata_sees_training_images_and_never_a_test_image(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = adapters.batches

    def spy(data: ImageSet, *args: int, **kwargs: int) -> object:
        seen.append(data.split)
        return real(data, *args, **kwargs)

    monkeypatch.setattr(adapters, "batches", spy)
    row = one.run(only("digits", "method=eata", "setting=paper", "shift=fog"), Sources())
    assert seen == ["train"]
    assert row["notes"] == ["source images: digits train, shuffled"]


def test_eata_without_training_images_says_so_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Sources()
    monkeypatch.setattr(disk, "train", lambda cell: None)
    row = one.run(only("digits", "method=eata", "setting=paper", "shift=fog"), disk)
    assert "no train split of digits" in row["notes"][0]
    assert any("acts as eta" in note for note in row["notes"])


def test_continual_goes_on_where_reset_starts_again() -> None:
    cell = only("digits-continual", "method=tent", sets=("tent.lr=0.05",))
    row = one.run(cell, Sources())
    assert [s["name"] for s in row["segments"]] == [name for name, _ in cell.sequence]
    assert [s["reset"] for s in row["segments"]] == [True, False, False, False, False]
    assert row["n"] == 5 * 80 == sum(s["n"] for s in row["segments"])
    assert row["accuracy"] == pytest.approx(sum(s["accuracy"] for s in row["segments"]) / 5)
    assert len(row["data"]) == 5
    alone = [
        one.run(replace(cell, protocol="reset", sequence=(), shift=name, severity=level), Sources())["loss"]
        for name, level in cell.sequence
    ]
    assert row["segments"][0]["loss"] == pytest.approx(alone[0])
    assert row["segments"][4]["loss"] != pytest.approx(alone[4], rel=1e-3)


def test_gradual_rises_and_falls() -> None:
    row = one.run(only("digits-gradual", "method=bn"), Sources())
    assert [s["severity"] for s in row["segments"]] == [1, 3, 5, 3, 1] * 2
    assert row["n"] == 10 * 80


def test_a_mixed_stream_is_taken_apart_into_its_shifts() -> None:
    cell = only("digits-mixed", "method=source")
    row = one.run(cell, Sources())
    assert [s["name"] for s in row["segments"]] == [name for name, _ in cell.sequence]
    assert [s["n"] for s in row["segments"]] == [80] * 5
    for segment in row["segments"]:  # the source model answers each image the same in any company
        logits, labels = by_hand(replace(cell, batch_size=80), segment["name"], 5)
        assert segment["accuracy"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    other = one.run(replace(cell, method="bn", seed=1), Sources())
    assert other["loss"] != one.run(replace(cell, method="bn", seed=2), Sources())["loss"]  # the order follows the seed


def test_label_shift_is_one_cell_a_shift_and_keeps_the_images() -> None:
    first, second = cells("digits-label-shift", "method=source")
    row = one.run(first, Sources())
    logits, labels = by_hand(replace(first, batch_size=80), first.shift, 5)
    assert row["accuracy"] == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    assert row["segments"] == []
    assert second.shift != first.shift


def flags(row: Row) -> list[bool]:
    right = unpacked(row["right"], row["n"])
    assert right is not None
    return list(map(bool, right))


@pytest.mark.parametrize("protocol", ["continual", "mixed", "label-shift", "mixed-label-shift", "limited-time"])
def test_flags_of_images_are_in_the_order_of_the_sets_whatever_the_order_of_the_stream(protocol: str) -> None:
    # the source model answers each image the same in any company, so its flags are those of `reset`
    plain = [one.run(cell, Sources()) for cell in cells("digits", "method=source")]
    streams = [one.run(cell, Sources()) for cell in cells("digits", "method=source", sets=(f"protocol={protocol}",))]
    assert [x for row in streams for x in flags(row)] == [x for row in plain for x in flags(row)]
    assert all(row["online"] for row in streams)


def test_recurring_counts_every_visit() -> None:
    row = one.run(only("digits", "method=bn", sets=("protocol=recurring", "rounds=3")), Sources())
    once = one.run(only("digits", "method=bn", sets=("protocol=continual",)), Sources())
    assert row["n"] == 3 * once["n"]
    assert [s["name"] for s in row["segments"]] == 3 * [s["name"] for s in once["segments"]]
    assert row["accuracy"] == pytest.approx(once["accuracy"])  # bn keeps nothing
    assert "right" not in row  # an image was answered three times


def test_a_set_in_one_batch_is_not_online() -> None:
    assert not one.run(only("digits", "method=bn", "shift=fog", sets=('batch_size="full"',)), Sources())["online"]


@pytest.mark.parametrize(
    ("method", "pace", "learnt"),
    [("tent", 2.0, [0, 1, 2, 3]), ("tent", 1.0, [0, 2]), ("tent", 0.5, [0]), ("bn", 1.0, [0, 1, 2, 3])],
)
def test_a_stream_that_does_not_wait_is_missed_by_the_passes_a_step_takes(
    method: str, pace: float, learnt: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("__call__", "peek"):
        plain = getattr(Adapter, name)
        monkeypatch.setattr(
            Adapter,
            name,
            lambda self, *a, _plain=plain, _name=name, **k: (calls.append(_name), _plain(self, *a, **k))[1],
        )
    sets = ("protocol=limited-time", f"pace={pace}", "batch_size=20")
    cell = only("digits", f"method={method}", "shift=fog", sets=sets)
    row = one.run(cell, Sources())
    calls = calls[:4]  # then the source model's pass
    assert [i for i, name in enumerate(calls) if name == "__call__"] == learnt
    assert row["missed"] == 4 - len(learnt)
    assert cell.pace == pace


def test_a_batch_that_was_missed_is_answered_by_the_model_as_it_was_left() -> None:
    cell = only("digits", "method=tent", "shift=fog", sets=("protocol=limited-time", "pace=0.1", "batch_size=20"))
    row = one.run(cell, Sources())  # one step on the first batch, no other
    data = Sources().images(cell, "fog", 5)
    adapter = adapt(Sources().model(cell, data), "tent", guard="off")
    parts = [adapter(x) if i == 0 else adapter.peek(x) for i, (x, _) in enumerate(batches(data, 20))]
    right = (torch.cat(parts).argmax(1) == torch.from_numpy(data.labels)).double().mean()
    assert row["accuracy"] == pytest.approx(float(right))
    assert row["missed"] == 3


def test_a_method_whose_answer_is_a_step_may_not_take_it_where_time_is_short() -> None:
    cell = only("digits", "method=source", "shift=fog", sets=("protocol=limited-time", "batch_size=20"))
    memo = one.run(replace(cell, method="memo", hyper=as_hyper({"copies": 2, "alpha": 0.0})), Sources())
    source = one.run(cell, Sources())
    assert memo["missed"] == 3
    assert sum(a != b for a, b in zip(flags(memo)[20:], flags(source)[20:], strict=True)) == 0


def test_the_whole_set_in_one_batch() -> None:
    full = one.run(only("digits", "method=bn", "shift=fog", sets=('batch_size="full"',)), Sources())
    same = one.run(only("digits", "method=bn", "shift=fog", sets=("batch_size=80",)), Sources())
    assert full["loss"] == pytest.approx(same["loss"])


def test_non_finite_answers_are_wrong_answers_and_nan_numbers() -> None:
    logits = torch.tensor([[3.0, 0.0], [math.nan, 0.0], [0.0, math.inf]])
    result = metrics(logits, torch.tensor([0, 0, 1]))
    assert result["accuracy"] == pytest.approx(1 / 3)
    assert result["nonfinite"] == 2
    assert math.isnan(result["ece"])
    assert math.isnan(result["loss"])


def test_watching_tells_without_changing_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PROGRESS_EVERY", 0.0)
    ticks: list[tuple[int, int, float]] = []
    cell = only("digits", "method=bn", "shift=fog", sets=("batch_size=20",))
    row = one.run(cell, Sources(), on_progress=lambda *tick: ticks.append(tick))
    assert [(done, total) for done, total, _ in ticks] == [(20, 80), (40, 80), (60, 80), (80, 80)]
    assert ticks[-1][2] == pytest.approx(row["accuracy"])
    assert one.run(cell, Sources())["loss"] == row["loss"]


def test_bf16_answers_nearly_the_same() -> None:
    full = one.run(only("digits", "method=bn", "shift=fog"), Sources())
    half = one.run(only("digits", "method=bn", "shift=fog", sets=("precision=bfloat16",)), Sources())
    assert half["loss"] == pytest.approx(full["loss"], rel=0.02)
    assert half["loss"] != full["loss"]
    with (
        pytest.raises(InputError, match="precision: expected one of float32, tf32, bfloat16, auto"),
        precision("int8", torch.device("cpu")),
    ):
        pass


def test_missing_data_names_the_command(tmp_path: object) -> None:
    cell = replace(only("digits", "method=bn", "shift=fog"), data="cifar10-c")
    with pytest.raises(DataError, match="steep data fetch cifar10"):
        one.run(cell, Sources(root=tmp_path))  # type: ignore[arg-type]
