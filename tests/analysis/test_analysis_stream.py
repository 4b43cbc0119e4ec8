"""The recorder: what it writes is what the adapter reports, it never waits, and its file survives."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.special import logsumexp

import steep
from nets import images, net
from steep import cli
from steep.analysis import stream
from steep.analysis.stream import Recorder, read
from steep.cli import follow
from steep.core.run.runner import Runner
from steep.errors import DataError, InputError

HYPER = {"tea": {"sgld_steps": 2, "buffer_size": 60}}


def run(path: Path, method: str = "tea", *, batches: list[torch.Tensor] | None = None, **options: Any) -> list[Any]:
    """Record a run; the adapter's own reports, which wait for the device."""
    lines = []
    record = options.pop("record", None) or Recorder(path)
    with record:
        adapter = steep.adapt(net(), method, callbacks=[record], **HYPER.get(method, {}), **options)
        for x in batches or [images(20, seed) for seed in range(4)]:
            adapter(x)
            lines.append(adapter.last)
    return lines


@pytest.mark.parametrize(("method", "predict"), [("tea", "after"), ("tent", "before"), ("source", None), ("eta", None)])
def test_a_line_is_what_the_adapter_reports(tmp_path: Path, method: str, predict: str | None) -> None:
    lines = run(tmp_path / "run.jsonl", method, predict=predict)
    rows = read(tmp_path / "run.jsonl")
    assert len(rows) == len(lines) == 4
    for row, last in zip(rows, lines, strict=True):
        for name in ("energy_before", "energy_after", "energy_samples", "loss"):
            expected = getattr(last, name)
            assert row[name] == (None if expected is None else pytest.approx(expected, rel=1e-5)), name
        assert (row["undone"], row["used"], row["n"]) == (last.undone, last.used, 20)
        assert row["skipped"] == last.skipped
        assert (row["method"], row["analysis"], row["version"], row["seed"]) == (method, "stream", 1, 0)
        assert {"commit", "device", "when"} <= row.keys()
    assert [row["batch"] for row in rows] == [1, 2, 3, 4]


def test_a_batch_that_waits_for_more_images_says_so(tmp_path: Path) -> None:
    lines = run(tmp_path / "run.jsonl", "tent", guard="recover")  # batches of 20, and a step has 50 images
    assert [row["waiting"] for row in read(tmp_path / "run.jsonl")] == [True, True, False, True]
    assert [last.used for last in lines] == [0, 0, 60, 0]


def test_what_is_kept_lies_where_the_answers_are_even_if_the_guard_judged_nothing() -> None:
    adapter = steep.adapt(net(), "source")
    adapter(images(20))
    kept = adapter.raw
    away = [step._replace(logits=step.logits.to("meta")) for step in kept.steps]  # as on a GPU: not the host
    lone = SimpleNamespace(raw=kept._replace(steps=away))
    assert kept.undone.device.type == "cpu"
    assert kept.verdict is None
    assert stream._numbers(lone, away[-1].logits).device.type == "meta"  # type: ignore[arg-type]


def test_entropy_and_classes_are_numpys(tmp_path: Path) -> None:
    answers = []
    with Recorder(tmp_path / "run.jsonl") as record:
        adapter = steep.adapt(net(), "tent", callbacks=[record, lambda _, logits: answers.append(logits)])
        for seed in range(3):
            adapter(images(20, seed))
    for row, logits in zip(read(tmp_path / "run.jsonl"), answers, strict=True):
        f = logits.double().numpy()
        p = np.exp(f - logsumexp(f, axis=1, keepdims=True))
        assert row["entropy"] == pytest.approx(-(p * np.log(p)).sum(1).mean(), rel=1e-5)
        assert row["classes"] == np.bincount(f.argmax(1), minlength=f.shape[1]).tolist()


def test_the_source_model_stands_beside_where_it_was_asked(tmp_path: Path) -> None:
    model, damaged, answers = net(), images(20, 1), []
    damaged[3] = math.nan
    with Recorder(tmp_path / "run.jsonl") as record:
        adapter = steep.adapt(model, "tent", lr=0.5, bad_images="nan", callbacks=[record])
        for x in (images(20), damaged, damaged):
            if len(answers) < 2:
                record.reference(model.eval()(x))
            answers.append(adapter(x).argmax(1).numpy())
    first, second, third = rows = read(tmp_path / "run.jsonl")
    cases = (images(20), range(20)), (damaged, [*range(3), *range(4, 20)])
    for row, (x, good), answer in zip(rows[:2], cases, answers[:2], strict=True):
        source = model(x).argmax(1).numpy()[good]
        assert row["source_classes"] == np.bincount(source, minlength=5).tolist()
        assert row["disagreement"] == pytest.approx((source != answer[good]).mean())
    assert first["disagreement"] + second["disagreement"] > 0
    assert third["disagreement"] is third["source_classes"] is None
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(follow.view(rows, tmp_path))
    assert "the same, source model" in console.export_text()


def test_the_estimated_gain_is_in_the_lines_the_view_and_the_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, source, batches = tmp_path / "run.jsonl", net().eval(), [images(20, seed) for seed in range(12)]
    with Recorder(path) as record:
        adapter = steep.adapt(net(), "tent", lr=0.1, callbacks=[record])
        for number, x in enumerate(batches):
            if number % 2 == 0:
                record.compare(source, x)
            adapter(x)
    rows = read(path)
    known = [row["batch"] for row in rows if row["gain"] is not None]
    assert known == [7, 9, 11]  # enough images have been compared, and only where the source model was asked
    assert [row["disagreement"] is not None for row in rows] == [True, False] * 6
    last = stream.estimate(rows)
    assert last is not None
    assert last == tuple(rows[10][name] for name in stream.GAIN)
    assert stream.estimate(rows[:6]) is None
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(follow.view(rows, path))
    shown = console.export_text()
    assert "estimated gain, points" in shown
    assert last.sentence in shown
    assert cli.main(["analyze", "stream", str(path), "--out", str(tmp_path / "out"), "--format", "json"]) == 0
    assert last.sentence in capsys.readouterr().out
    drawn = json.loads((tmp_path / "out" / "rows.jsonl").read_text().splitlines()[10])
    assert drawn["gain_low"] == pytest.approx(last.low)


@pytest.mark.filterwarnings("ignore:step undone")
@pytest.mark.parametrize("later", [False, True])
def test_a_step_the_guard_undid_stands_on_its_own_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    if later:  # the host does not wait for the verdict, as on a GPU
        monkeypatch.setattr(Runner, "asynchronous", ("cpu",))
    from steep.methods.tent import Tent

    step, count = Tent.step, 0

    def breaks(self: Tent, state: Any, x: torch.Tensor) -> Any:
        nonlocal count
        count += 1
        done = step(self, state, x)
        return done._replace(loss=done.loss * math.nan) if count == 2 else done

    monkeypatch.setattr(Tent, "step", breaks)
    with Recorder(tmp_path / "run.jsonl") as record:
        adapter = steep.adapt(net(), "tent", callbacks=[record])
        for seed in range(4):
            adapter(images(20, seed))
    rows = read(tmp_path / "run.jsonl")
    assert [row["undone"] for row in rows] == [0, 1, 1, 1]
    assert [row["skipped"] for row in rows] == [None, "the loss is not finite", None, None]
    assert [row["used"] for row in rows] == [20, 0, 20, 20]


def test_damaged_images_are_in_no_class(tmp_path: Path) -> None:
    x = images(20)
    x[3] = math.nan
    run(tmp_path / "run.jsonl", "tent", batches=[x, torch.full_like(x, math.nan)], bad_images="nan")
    first, second = read(tmp_path / "run.jsonl")
    assert (sum(first["classes"]), first["n"]) == (19, 20)
    assert math.isfinite(first["entropy"])
    assert (sum(second["classes"]), second["entropy"]) == (0, None)
    assert second["skipped"] == "no good image in the batch"


def test_nothing_is_read_from_the_device_between_two_flushes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = steep.adapt(net(), "tea", **HYPER["tea"])
    logits = adapter(images(20))
    record = Recorder(tmp_path / "run.jsonl", every=3, seconds=1e9)
    record(adapter, logits)

    def waits(*_: Any) -> None:
        raise AssertionError("waited for the device")

    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "nonzero"):
        monkeypatch.setattr(torch.Tensor, name, waits)
    record.reference(logits)
    record(adapter, logits)
    assert read(tmp_path / "run.jsonl") == []
    with pytest.raises(AssertionError, match="waited"):
        record(adapter, logits)
    monkeypatch.undo()


def test_lines_come_every_so_many_batches_and_the_rest_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.jsonl"
    record = Recorder(path, every=2, seconds=1e9)
    adapter = steep.adapt(net(), "tent", callbacks=[record])
    seen = []
    for seed in range(5):
        adapter(images(20, seed))
        seen.append(len(read(path)))
    record.close()
    record.close()
    assert [*seen, len(read(path))] == [0, 2, 2, 4, 4, 5]


def test_a_second_run_in_the_same_file_is_the_one_that_is_read(tmp_path: Path) -> None:
    run(tmp_path / "run.jsonl", "tent")
    run(tmp_path / "run.jsonl", "bn", batches=[images(20)])
    rows = read(tmp_path / "run.jsonl")
    assert [(row["method"], row["batch"]) for row in rows] == [("bn", 1)]


def test_bad_files_are_refused_with_the_line_and_a_torn_end_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run(path, "tent")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(read(path)) == 3
    path.write_bytes(whole.replace(b'"version":1', b'"version":99', 1))
    with pytest.raises(DataError, match="newer steep"):
        read(path)
    path.write_bytes(whole.split(b"\n", 1)[1])
    with pytest.raises(DataError, match="expected a run to start"):
        read(path)
    path.write_bytes(b"not json\n")
    with pytest.raises(DataError, match="line 1"):
        read(path)
    with pytest.raises(DataError, match="expected a file that"):
        read(tmp_path / "nowhere.jsonl")
    with pytest.raises(InputError, match="every: expected 1"):
        Recorder(path, every=0)


def test_the_live_view_shows_numbers_and_events_and_what_is_added(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    run(path)
    rows = read(path)
    console = Console(width=100, record=True, file=io.StringIO())
    rows[2]["skipped"] = "[bold]the loss[/bold] is not finite"
    console.print(follow.view(rows, path))
    shown = console.export_text()
    assert "batch 4, 80 images" in shown
    assert f"{rows[-1]['energy_samples']:.3f}" in shown
    assert "batch 3: [bold]the loss[/bold] is not finite" in shown
    seen: list[int] = []

    def until(rows: list[dict[str, Any]]) -> bool:
        seen.append(len(rows))
        if len(seen) == 1:  # the run goes on while somebody looks
            line = path.read_bytes().splitlines(keepends=True)[-1]
            path.write_bytes(path.read_bytes() + line.replace(b'"batch":4', b'"batch":5'))
        return len(seen) > 1

    follow.follow_run(path, console, seconds=0.0, until=until)
    assert seen == [4, 5]
    assert "no batch yet" in str(follow.view([], path))


def test_the_cost_in_the_docs_is_that_of_the_stored_row() -> None:
    docs = Path(__file__).parents[2] / "docs"
    row = json.loads((docs / "recorder_cost.jsonl").read_text(encoding="utf-8"))
    text = " ".join((docs / "analysis.md").read_text(encoding="utf-8").split())
    spent, whole = f"{1000 * row['recorder_s']:.0f} ms", f"{row['stream_s']:.1f} s"
    assert (
        f"recorder took {spent} of a stream of {whole} ({row['batches']} batches of {row['batch_size']} images" in text
    )
