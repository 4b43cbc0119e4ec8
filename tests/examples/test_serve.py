"""The served example: each picture gets its own answer, a full queue says so, and the state outlives the process."""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
import threading
import time
import tomllib
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

import steep
from steep.core.run import watched
from steep.errors import CheckpointError

FOLDER = Path(__file__).parents[2] / "examples/serve"
MODEL = '''
"""Says which of 16 cells of a picture is the brightest, whatever else is in its batch."""
from torch import nn

def cells():
    return nn.Sequential(nn.Conv2d(3, 1, 1), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.LayerNorm(16))
'''


def bright(cell: int, noise: int) -> np.ndarray:
    """A picture with one bright cell of 16; `noise` makes it like no other."""
    pixels = np.random.default_rng(noise).integers(0, 60, (16, 16, 3), dtype=np.uint8)
    row, column = divmod(cell, 4)
    pixels[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 190
    return pixels


def encoded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, set up for a small model."""
    import torch

    (tmp_path / "model.py").write_text(MODEL)
    weights = tmp_path / "cells.safetensors"
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(tmp_path))
    model = importlib.import_module("model").cells()
    torch.nn.init.ones_(model[0].weight)
    steep.models.checkpoints.save(model, weights)
    settings = {"MODEL": f"{tmp_path / 'model.py'}:cells", "WEIGHTS": str(weights), "SIZE": "16", "METHOD": "tent"}
    settings |= {"STATE": str(tmp_path / "state.safetensors"), "SAVE_EVERY": "3", "BATCH": "8", "COMPARE_EVERY": "1"}
    for name, value in settings.items():
        monkeypatch.setenv(f"SERVE_{name}", value)
    monkeypatch.setenv("PYTHONPATH", str(Path(steep.__file__).parents[1]))
    yield importlib.import_module("app")
    for name in ("app", "worker", "load_test", "model"):
        sys.modules.pop(name, None)


def ask(client: TestClient, number: int) -> None:
    """Ask for a picture and check that the answer is of this one."""
    pixels, name = bright(number % 16, number), f"picture {number}"
    answer = client.post("/predict", content=encoded(pixels), headers={"X-Request-Id": name}).json()
    assert (answer["id"], answer["class"], answer["pixels"]) == (name, str(number % 16), zlib.crc32(pixels.tobytes()))


def test_each_picture_gets_its_own_answer(app: ModuleType) -> None:
    with TestClient(app.app) as client, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ask(client, number), range(64)))
        stats = client.get("/stats").json()
        assert client.get("/healthz").json() == {"ok": True}
        text = client.get("/metrics").text
    assert stats["images"] == stats["compared"] == 64
    assert stats["disagreed"] == 0  # the answers are the source model's too
    assert stats["batches"] >= 8  # of at most 8 pictures
    read = {s.name: s.value for family in text_string_to_metric_families(text) for s in family.samples}
    assert read["steep_images_total"] == read["steep_latency_seconds_count"] == 64
    assert not app.app.state.worker.is_alive()


def test_the_state_is_kept_over_a_restart(app: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "FULL", 7)  # images that wait before anything is learned: 7 are of two runs
    for start in (0, 5, 10):  # 5 is no multiple of save_every: an orderly end loses nothing
        with TestClient(app.app) as client:
            assert client.get("/stats").json()["resumed_at"] == start
            for number in range(5):
                ask(client, number)
            assert client.get("/stats").json()["state_batches"] == start + 5
    worker = app.app.state.worker
    model = worker.adapter.model
    steps = steep.resume(worker.state, worker.source).model[3].weight
    assert steps.equal(model[3].weight)
    assert not steps.equal(worker.source[3].weight)  # it did adapt
    monkeypatch.setenv("SERVE_METHOD", "bn")
    with pytest.raises(CheckpointError, match="expected bn, got tent"), TestClient(app.app):
        pass


def test_a_full_queue_says_when_to_come_again(app: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVE_WAITING", "2")
    busy, free = threading.Event(), threading.Event()

    def hold(*_: object) -> None:
        busy.set()
        free.wait(30)

    with TestClient(app.app) as client, ThreadPoolExecutor(3) as pool:
        worker = app.app.state.worker
        worker.adapter.callbacks.append(hold)
        waiting = [pool.submit(ask, client, 0)]
        assert busy.wait(30)  # one is being answered, two wait
        waiting += [pool.submit(ask, client, number) for number in (1, 2)]
        while worker.questions.qsize() < 2:
            time.sleep(0.01)
        refused = client.post("/predict", content=encoded(bright(3, 3)))
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        free.set()
        for each in waiting:
            each.result()
        assert client.get("/stats").json()["batches"] == 2  # the two that waited shared one


def test_bad_bodies_and_a_failing_batch_harm_nobody_else(app: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVE_MOST_BYTES", "5000")
    with TestClient(app.app, raise_server_exceptions=False) as client:
        assert client.post("/predict", content=b"%!PS-Adobe-3.0 EPSF-3.0").status_code == 422
        assert client.post("/predict", content=bytes(5001)).status_code == 413
        worker = app.app.state.worker
        worker.adapter.callbacks.append(lambda *_: 1 / 0)
        assert client.post("/predict", content=encoded(bright(3, 3))).status_code == 500
        worker.adapter.callbacks.pop()
        monkeypatch.setattr(worker.adapter, "save", lambda _: steep.adapt(worker.source, "tent").save("/dev/null/x"))
        for number in range(5):
            ask(client, number)
        assert worker.saved_at == 0  # nothing could be saved, and all were answered


@pytest.mark.slow
def test_under_load_and_killed_on_the_way(app: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    importlib.import_module("load_test").main(
        ["--clients", "4", "--seconds", "8", "--kills", "1", "--count", "64", "--out", str(out)]
    )
    row = json.loads(out.read_text())
    assert row["answered"] > 20
    assert row["broken"] > 0  # somebody noticed
    assert row["kills"][0]["resumed_at"] % 3 == 0
    assert row["kills"][0]["batches"] - 3 < row["kills"][0]["resumed_at"] < row["state_batches"]


def test_the_container_gets_what_the_extra_names() -> None:
    home = FOLDER.parents[1]
    extra = tomllib.loads((home / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
    lines = (FOLDER / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == extra
    copied = re.findall(r"^COPY (.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.M)
    assert all((home / name).exists() for names in copied for name in names.split())
    assert len(copied) == 3
