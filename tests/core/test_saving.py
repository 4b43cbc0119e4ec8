"""Saved adapter state: killed anywhere and resumed, it goes on; damaged anywhere, it is refused."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import random
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import steep
from nets import few, images, net
from steep.core.io import saving
from steep.errors import CheckpointError, DataError
from steep.methods.tent import Tent

TEA = {"sgld_steps": 2, "buffer_size": 64}
HYPER = {
    "dua": {"images": 50, "copies": 3},
    "eta": {"novelty": 2.0},
    "eata": {"novelty": 2.0},
    "cotta": {"copies": 2},
    "memo": {"copies": 2},
    "rotta": {"memory": 8, "every": 12},
    "tea": TEA,
}


@pytest.mark.parametrize("method", steep.METHODS)
def test_resume_goes_on_exactly(method, tmp_path):
    hyper = HYPER.get(method, {})
    options = {"steps": 2, "seed": 5, "predict": "after", "guard": "recover"}
    adapter = steep.adapt(net(), method, source=[images()], **options, **hyper)
    for s in range(12):
        adapter(images(few(method), seed=s))
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", net())
    assert resumed.method == adapter.method
    assert resumed.options() == adapter.options()
    for s in range(12, 24):
        x = images(few(method), seed=s)
        assert torch.equal(resumed(x), adapter(x))


def test_a_method_of_ones_own_is_given_again(tmp_path):
    class Mine(Tent):
        name = "mine"

    adapter = steep.adapt(net(), Mine(lr=0.01))
    adapter(images())
    adapter.save(tmp_path / "state")
    with pytest.raises(steep.errors.SteepError, match="unknown method 'mine'"):
        steep.resume(tmp_path / "state", net())
    assert torch.equal(steep.resume(tmp_path / "state", net(), Mine(lr=0.01))(images()), adapter(images()))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "state.safetensors"
    adapter = steep.adapt(net(), "tea", **TEA)
    adapter(images())
    adapter.save(path)
    return path


def test_every_region_of_the_file_is_protected(saved, tmp_path):
    whole = saved.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    rng = random.Random(0)
    places = [*range(8), *(rng.randrange(8, 8 + header) for _ in range(60))]
    places += [rng.randrange(8 + header, len(whole)) for _ in range(60)] + [len(whole) - 1]
    kept = 0
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << rng.randrange(8)
        (tmp_path / "broken").write_bytes(broken)
        try:
            loaded = saving.load(tmp_path / "broken")
        except CheckpointError:
            continue
        kept += 1  # only white space or the order of the header may differ without a difference
        assert str(loaded) == str(saving.load(saved))
    assert kept <= 2
    for length in (0, 1, 7, 8, 100, 8 + header, len(whole) // 2, len(whole) - 1):
        (tmp_path / "torn").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            saving.load(tmp_path / "torn")


def test_files_that_are_not_ours_or_newer_or_of_another_model_are_refused(saved, tmp_path):
    (tmp_path / "text").write_text("hello")
    torch.save({"format": 1}, tmp_path / "pickle")
    save_file({"a": torch.ones(2)}, tmp_path / "other")
    with pytest.raises(CheckpointError, match="expected steep adapter state, got a safetensors file of something else"):
        steep.resume(tmp_path / "other", net())
    for name in ("text", "pickle", "missing"):
        with pytest.raises(CheckpointError, match="not a file of steep adapter state"):
            steep.resume(tmp_path / name, net())
    with pytest.raises(CheckpointError, match="its frozen weights are not those given"):
        steep.resume(saved, net(seed=1))
    tensors = load_file(saved)
    save_file(tensors, tmp_path / "newer", {"kind": saving.KIND, "version": "99"})
    with pytest.raises(CheckpointError, match="expected version ≤ 1, got 99"):
        steep.resume(tmp_path / "newer", net())


def test_a_full_disk_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "state"
    path.write_bytes(saved.read_bytes())
    adapter = steep.resume(path, net())
    adapter(images(seed=7))

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="the disk is full"):
        adapter.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


LAST = 60


def stream(folder: Path) -> None:
    """Go on where the file says; after each batch save, then log the answer."""
    torch.set_num_threads(1)
    state, log = folder / "state", folder / "answers.jsonl"
    fresh = not state.exists()
    adapter = steep.adapt(net(), "tea", guard="skip", **TEA) if fresh else steep.resume(state, net())
    counter = adapter.model[1].num_batches_tracked  # a buffer of the model, saved with everything else
    with log.open("a") as file:
        for s in range(0 if fresh else int(counter), LAST):
            logits = adapter(images(16, seed=s))
            counter.fill_(s + 1)
            adapter.save(state)
            file.write(json.dumps([s, logits.double().sum().item()]) + "\n")
            file.flush()


def test_killed_at_twenty_moments_nothing_is_lost_but_the_batch_in_flight(tmp_path):
    adapter = steep.adapt(net(), "tea", **TEA)
    expected = [adapter(images(16, seed=s)).double().sum().item() for s in range(LAST)]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["steep", "nets"])  # torch is imported once: a worker starts in no time
    rng, kills = random.Random(1), 0
    while kills < 20:
        worker = context.Process(target=stream, args=(tmp_path,))
        worker.start()
        worker.join(rng.uniform(0.02, 0.15))
        if worker.exitcode is None:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        kills += 1
        if (tmp_path / "state").exists():
            saving.load(tmp_path / "state")  # whole at every moment
    worker = context.Process(target=stream, args=(tmp_path,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    answers = dict(json.loads(line) for line in lines if line.endswith("]"))
    assert all(total == expected[s] for s, total in answers.items())
    assert len(answers) >= LAST - kills  # an answer may be lost between its save and its log line
    assert identical_parameters(steep.resume(tmp_path / "state", net()), adapter)


def identical_parameters(a: steep.Adapter, b: steep.Adapter) -> bool:
    return all(map(torch.equal, a.model.parameters(), b.model.parameters()))


class Gridded(nn.Module):
    """Keeps grids of the image size at hand, which no file holds: one from the start on, one from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("grid", torch.zeros(1, 1), persistent=False)

    def forward(self, x):
        if self.grid.shape != x.shape[-2:]:
            self.grid = torch.linspace(0, 1, x.shape[-1]).expand(x.shape[-2:]).clone()
            self.register_buffer("late", self.grid.t().clone(), persistent=False)
        return self.net(x + self.grid + self.late)


SIZES = 8, 12, 8, 12


def test_a_model_may_make_buffers_anew_for_each_image_size():
    adapter, plain = steep.adapt(Gridded(), "tent"), steep.adapt(net(), "tent")
    for s, size in enumerate(SIZES):
        x = images(seed=s, size=size)
        ramp = torch.arange(size) / (size - 1)
        torch.testing.assert_close(adapter(x), plain(x + ramp + ramp[:, None]))


@pytest.mark.parametrize("method", ["tent", "dua"])
def test_a_state_saved_at_one_size_goes_on_at_another_and_statistics_are_in_it(method, tmp_path):
    hyper = {"images": 90, "copies": 4} if method == "dua" else {}
    model, stream = Gridded(), [images(seed=s, size=size) for s, size in enumerate(SIZES)]
    adapter = steep.adapt(model, method, **hyper)
    first = [adapter(x) for x in stream]
    kept = adapter.state_dict()["state"]["model"]
    assert kept.keys() >= {"net.1.running_mean", "net.5.running_var"}
    assert not kept.keys() & {"grid", "late"}
    for other in (adapter, pickle.loads(pickle.dumps(adapter))):
        other.reset()
        assert all(torch.equal(other(x), y) for x, y in zip(stream[:2], first[:2], strict=True))
    adapter.save(tmp_path / "state")
    resumed = steep.resume(tmp_path / "state", model)
    assert all(torch.equal(resumed(x), y) for x, y in zip(stream[2:], first[2:], strict=True))
    assert model.grid.shape == (1, 1)


def test_chains_resume_in_another_precision_of_the_model(tmp_path):
    model = net()
    adapter = steep.adapt(model, "tea", **TEA)
    adapter(images())
    adapter.save(tmp_path / "state.safetensors")
    resumed = steep.resume(tmp_path / "state.safetensors", model.double())
    before = {name: value.clone() for name, value in resumed.state_dict()["state"]["model"].items()}
    resumed(images().double())
    assert resumed.last.undone == 0
    assert any(not torch.equal(before[name], value) for name, value in resumed.state_dict()["state"]["model"].items())


def test_a_wrapper_that_renames_the_weights_is_named_as_a_cause(tmp_path):
    adapter = steep.adapt(net(), "tent")
    adapter(images())
    adapter.save(tmp_path / "state.safetensors")
    with pytest.raises(CheckpointError, match=r"or go by other names, as within torch\.compile or DataParallel"):
        steep.resume(tmp_path / "state.safetensors", nn.Sequential(net()))
