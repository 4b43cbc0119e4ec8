"""What the monitor says is what the answers were: compared with numpy, and read by Prometheus' own parser."""

from __future__ import annotations

import copy
import json
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from scipy.special import logsumexp

import steep
from nets import images, net
from steep.core.run.runner import Runner
from steep.integrations.monitoring import HALF_LIFE, MOST_REASONS, Monitor
from steep.methods.tent import Tent


def samples(monitor: Monitor) -> dict[tuple[str, str], float]:
    """(name, value of the label) → value, as Prometheus reads the text."""
    families = text_string_to_metric_families(monitor.prometheus())
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }


def run(monitor: Monitor, *batches: torch.Tensor, **options: Any) -> tuple[steep.Adapter, list[np.ndarray]]:
    adapter = steep.adapt(net(), "tent", callbacks=[monitor], **options)
    return adapter, [adapter(x).double().numpy() for x in batches]


def test_counts_are_numpys():
    monitor, damaged = Monitor(), images(12, 3)
    damaged[4] = math.nan
    _, answers = run(monitor, images(20), images(8, 1), damaged, bad_images="nan")
    logits = np.concatenate(answers)
    logits = logits[~np.isnan(logits).any(1)]
    log_p = logits - logsumexp(logits, axis=1, keepdims=True)
    read = samples(monitor)
    assert read["steep_batches_total", ""] == 3
    assert read["steep_images_total", ""] == 40
    assert read["steep_entropy_nats_count", ""] == len(logits) == 39
    assert read["steep_entropy_nats_sum", ""] == pytest.approx(-(np.exp(log_p) * log_p).sum(), rel=1e-5)
    faded = sum(
        np.bincount(f[~np.isnan(f).any(1)].argmax(1), minlength=logits.shape[1]) * 0.5 ** (later / HALF_LIFE)
        for f, later in zip(answers, (20, 12, 0), strict=True)
    )
    for k, share in enumerate(faded / faded.sum()):
        assert read["steep_class_share", str(k)] == pytest.approx(share)
    numbers = monitor.numbers()
    assert (numbers["batches"], numbers["images"], numbers["answered"]) == (3, 40, 39)
    assert numbers["source_disagreement"] is numbers["latency_s"] is None


def test_disagreement_counts_where_the_source_answered():
    monitor = Monitor()
    adapter, (first,) = run(monitor, images(20))
    other = torch.from_numpy(first).roll(1, dims=1)  # every answer another class
    monitor.reference(other)
    second = adapter(images(20)).double().numpy()
    read = samples(monitor)
    differ = int((second.argmax(1) != other.numpy().argmax(1)).sum())
    assert differ > 10
    assert (read["steep_compared_total", ""], read["steep_disagreed_total", ""]) == (20, differ)
    assert monitor.numbers()["source_disagreement"] == pytest.approx(differ / 20)


def test_the_gain_is_told_where_the_source_model_was_asked(tmp_path):
    path, source = tmp_path / "monitor.jsonl", net().eval()
    monitor = Monitor(path=path, seconds=0)
    adapter = steep.adapt(net(), "tent", lr=0.1, callbacks=[monitor])
    assert monitor.numbers()["estimated_gain"] is None
    assert not {name for name, _ in samples(monitor) if "gain" in name}
    for seed in range(5):
        monitor.compare(source, images(20, seed))
        adapter(images(20, seed))
    gain, read = monitor.numbers()["estimated_gain"], samples(monitor)
    for name in ("gain", "low", "high"):
        assert read["steep_estimated_gain_points", name] == pytest.approx(gain[name])
    assert gain["verdict"] in ("helping", "harming", "cannot tell")
    assert -100 <= gain["low"] <= gain["gain"] <= gain["high"] <= 100
    assert read["steep_compared_total", ""] == 100
    assert json.loads(path.read_text().splitlines()[-1])["estimated_gain"] == gain
    adapter(images(20))  # without the source model
    assert monitor.numbers()["estimated_gain"] == gain
    assert samples(monitor)["steep_compared_total", ""] == 100


def test_few_classes_have_a_name_and_any_name_can_be_read():
    names = ['a "b"', "c\\d", "e\nf", *(f"class {k}" for k in range(3, 10))]
    monitor, every = Monitor(names, top=3), Monitor(names)
    _, answers = run(monitor, images(40))
    run(every, images(40))
    shares = {label: value for (name, label), value in samples(monitor).items() if name == "steep_class_share"}
    assert len(shares) == 4
    assert shares.pop("other") == pytest.approx(1 - sum(shares.values()))
    counts = np.bincount(answers[0].argmax(1), minlength=10)
    assert sorted(shares.values(), reverse=True) == pytest.approx(sorted(counts / 40, reverse=True)[:3])
    assert {label for name, label in samples(every) if name == "steep_class_share"} >= set(names[: answers[0].shape[1]])


@pytest.mark.filterwarnings("ignore:step undone")
@pytest.mark.parametrize("later", [False, True])
def test_steps_that_the_guard_undid(monkeypatch: pytest.MonkeyPatch, later: bool):
    if later:  # the host does not wait for the verdict, as on a GPU
        monkeypatch.setattr(Runner, "asynchronous", ("cpu",))
    step = Tent.step

    def breaks(self: Tent, state: Any, x: torch.Tensor) -> Any:
        return step(self, state, x)._replace(loss=torch.tensor(math.nan)) if len(x) == 7 else step(self, state, x)

    monkeypatch.setattr(Tent, "step", breaks)
    monitor = Monitor()
    run(monitor, images(20), images(7), images(20), images(7))
    read = samples(monitor)
    assert read["steep_undone_steps_total", ""] == 2
    skipped = {label: value for (name, label), value in read.items() if name == "steep_skipped_batches_total"}
    assert sum(skipped.values()) == 2
    assert len(skipped) == 1


def test_reasons_and_events_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch):
    monitor = Monitor()
    adapter, _ = run(monitor, images(20))
    raw = adapter.raw
    for number in range(MOST_REASONS + 3):
        skipped = raw.steps[-1]._replace(moved=False, note=f"reason {number}: {number} nats")
        recovered = raw.steps[-1]._replace(leap=True, note="recovered it: 3.2 classes")
        for step in (skipped, recovered, skipped, recovered):
            monkeypatch.setattr(type(adapter), "raw", raw._replace(steps=[step]))
            monitor(adapter, raw.logits)
    read = samples(monitor)
    assert read["steep_guard_events_total", "recovered it"] == 2 * (MOST_REASONS + 3)
    skipped = {label: value for (name, label), value in read.items() if name == "steep_skipped_batches_total"}
    assert skipped == {**{f"reason {number}": 2 for number in range(MOST_REASONS)}, "other": 6}


def test_latencies_are_a_histogram():
    monitor = Monitor()
    for seconds in (0.001, 0.03, 0.03, 60.0):
        monitor.took(seconds)
    read = samples(monitor)
    buckets = [read["steep_latency_seconds_bucket", edge] for edge in ("0.005", "0.025", "0.05", "10.0", "+Inf")]
    assert buckets == [1, 1, 3, 3, 4]
    assert read["steep_latency_seconds_count", ""] == 4
    assert read["steep_latency_seconds_sum", ""] == pytest.approx(60.061)


def test_a_batch_reads_nothing_from_the_device(monkeypatch: pytest.MonkeyPatch):
    monitor = Monitor()
    adapter, _ = run(monitor, images(20))
    logits = adapter.raw.logits

    def waits(*_: Any) -> None:
        raise AssertionError("waited for the device")

    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "nonzero"):
            patch.setattr(torch.Tensor, name, waits)
        monitor.reference(logits)
        monitor(adapter, logits)
        with pytest.raises(AssertionError, match="waited"):
            monitor.numbers()
    assert monitor.numbers()["batches"] == 2


@pytest.mark.gpu
def test_on_a_gpu_a_batch_never_waits():
    monitor = Monitor()
    adapter = steep.adapt(net(), "tent", device="cuda", callbacks=[monitor])
    monitor.compare(net().eval().cuda(), images(20).cuda())
    logits, before = adapter(images(20)), monitor.numbers()  # this one does
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls this mode a prototype
        try:
            torch.cuda.set_sync_debug_mode("error")
            monitor.reference(logits)
            monitor(adapter, logits)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert (monitor.numbers()["batches"], monitor.numbers()["disagreed"]) == (2, before["disagreed"])


def test_json_lines(tmp_path):
    path = tmp_path / "monitor.jsonl"
    run(Monitor(path=path, seconds=0), images(20), images(8))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["batches"], row["images"]) for row in rows] == [(1, 20), (2, 28)]
    run(Monitor(path=path, seconds=1e9), images(20))
    assert len(path.read_text().splitlines()) == 2


def test_an_adapter_with_a_monitor_can_be_copied():
    monitor = Monitor()
    adapter, _ = run(monitor, images(20))
    twin = copy.deepcopy(adapter)
    twin(images(20))
    assert (monitor.numbers()["batches"], twin.callbacks[0].numbers()["batches"]) == (1, 2)
