"""What the loggers write is what `adapter.last` said, and nothing is imported unless used."""

from __future__ import annotations

import copy
import json
import sys

import pytest
import torch

import steep
from nets import images, net
from steep.errors import InputError
from steep.integrations.loggers import JsonLines, TensorBoard


def run(logger, method: str = "tent", **options) -> list[steep.Adapter]:
    reports = []
    adapter = steep.adapt(net(), method, callbacks=[logger, lambda a, _: reports.append(a.last)], **options)
    for seed in range(4):
        adapter(images(20 - seed, seed=seed))
    return reports


def test_json_lines(tmp_path):
    path = tmp_path / "deep" / "stream.jsonl"
    reports = run(JsonLines(path))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["batch"], row["images"]) for row in rows] == [(1, 20), (2, 39), (3, 57), (4, 74)]
    for row, report in zip(rows, reports, strict=True):
        assert {key: row[key] for key in vars(report)} == vars(report)
    run(JsonLines(path, every=3))
    assert [json.loads(line)["batch"] for line in path.read_text().splitlines()[4:]] == [3]


def test_what_json_cannot_say_is_null(tmp_path):
    path = tmp_path / "stream.jsonl"
    adapter = steep.adapt(net(), "tent", bad_images="nan", callbacks=[JsonLines(path)])
    adapter(torch.full((4, 3, 8, 8), float("nan")))
    row = json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(word))
    assert row["energy_before"] is None
    assert row["skipped"] == "no good image in the batch"


def test_only_the_batches_written_are_waited_for(tmp_path):
    class Asked:
        times = 0

        @property
        def last(self):
            self.times += 1

    asked, logger = Asked(), JsonLines(tmp_path / "x.jsonl", every=5)
    for _ in range(9):
        logger(asked, torch.zeros(2, 3))
    assert asked.times == 1
    with pytest.raises(InputError, match="every: expected 1 or more"):
        JsonLines(tmp_path / "x.jsonl", every=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = TensorBoard(tmp_path)
    reports = run(logger)
    logger.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    curve = events.Scalars("steep/energy_before")
    assert [point.step for point in curve] == [20, 39, 57, 74]
    assert [point.value for point in curve] == pytest.approx([report.energy_before for report in reports])
    assert "steep/energy_after" not in events.Tags()["scalars"]  # tent answers before its update
    copy.deepcopy(steep.adapt(net(), "tent", callbacks=[logger]))(images())


def test_a_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install '.\[tensorboard\]'"):
        TensorBoard(tmp_path)
