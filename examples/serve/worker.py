"""The one thread that adapts: it takes the pictures that wait as one batch, adapts on it, and answers each."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import zlib
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import steep
from steep.errors import CheckpointError, SteepError
from steep.integrations.monitoring import Monitor
from steep.predicting import load_model

log = logging.getLogger("uvicorn.error")


@dataclass(frozen=True)
class Settings:
    """Each can be set by an environment variable: SERVE_METHOD, SERVE_BATCH, and so on."""

    model: str = "wrn-40-2"  # as in `steep predict --model`
    weights: str = "cifar10-wrn-40-2"
    size: int = 32  # pictures are brought to this many pixels a side
    device: str = "cpu"
    method: str = "infuse"
    precision: str = "auto"  # as in `steep.adapt`
    batch: int = 32  # pictures at most in a batch
    waiting: int = 128  # pictures at most in the queue; who comes then is told to come again
    state: str = "serve-state.safetensors"
    save_every: int = 20  # batches; so many at most are lost if the process is killed
    compare_every: int = 10  # batches, of which one is answered by the source model too
    view: str = "mirror"  # or "shift", where a mirror changes the class
    most_bytes: int = 10_000_000  # of a picture

    @classmethod
    def from_environment(cls) -> Settings:
        """Read them."""
        names = {each: f"SERVE_{each.name.upper()}" for each in fields(cls)}
        return cls(**{f.name: type(f.default)(os.environ[name]) for f, name in names.items() if name in os.environ})


@dataclass(frozen=True)
class Question:
    """A picture that waits for its answer."""

    name: str | None
    pixels: np.ndarray  # (H, W, 3), uint8
    answer: Future[dict[str, Any]] = field(default_factory=Future)
    asked: float = field(default_factory=time.monotonic)


class Worker(threading.Thread):
    """Loads the model, resumes what was saved of it, and answers questions until `ending` is set."""

    def __init__(self, settings: Settings) -> None:
        """Load or resume; a state that does not fit is an error, not overwritten."""
        super().__init__(name="adapt", daemon=True)
        self.settings, self.state = settings, Path(settings.state)
        self.questions: queue.Queue[Question] = queue.Queue(settings.waiting)
        self.ending = threading.Event()
        loaded = load_model(settings.model, weights=settings.weights or None)
        self.source, self.classes = loaded.model.to(settings.device), loaded.classes
        if self.state.exists():
            self.adapter = steep.resume(self.state, self.source)
            if (method := self.adapter.method.name) != settings.method:
                raise CheckpointError(f"{self.state}: expected {settings.method}, got {method}. Move the file away")
        else:
            self.adapter = steep.adapt(self.source, settings.method, precision=settings.precision)
        self.monitor = Monitor(self.classes)
        self.adapter.callbacks.append(self.monitor)
        self.batches = self.resumed_at = self.saved_at = self.adapter.state_dict()["since_reset"]

    def run(self) -> None:
        """Answer until the end, then what still waits, and save."""
        while not (self.ending.is_set() and self.questions.empty()):
            if batch := self.gather():
                self.answer(batch)
                if self.batches >= self.saved_at + self.settings.save_every:
                    self.save()
        self.save()

    def gather(self) -> list[Question]:
        """Take the questions that are there; wait a little for the first, never for a batch to fill."""
        batch: list[Question] = []
        try:
            batch.append(self.questions.get(timeout=0.1))
            while len(batch) < self.settings.batch:
                batch.append(self.questions.get_nowait())
        except queue.Empty:
            pass
        return [each for each in batch if each.answer.set_running_or_notify_cancel()]  # somebody may have hung up

    def answer(self, batch: list[Question]) -> None:
        """Adapt on a batch and answer it. If that fails, the model is as before it, and only this batch is told."""
        try:
            pixels = np.stack([question.pixels for question in batch])
            x = torch.from_numpy(pixels).to(self.settings.device).permute(0, 3, 1, 2) / 255
            if self.batches % self.settings.compare_every == 0:
                self.monitor.compare(self.source, x, self.settings.view)
            probabilities, labels = self.adapter(x).softmax(dim=1).max(dim=1)
        except Exception as error:
            for question in batch:
                question.answer.set_exception(error)
            return
        self.batches += 1
        for question, row, p, label in zip(batch, pixels, probabilities.tolist(), labels.tolist(), strict=True):
            name = self.classes[label] if self.classes else str(label)
            about = {"id": question.name, "pixels": zlib.crc32(row), "batch": self.batches}  # what this answers
            question.answer.set_result({"class": name, "probability": p, **about})
            self.monitor.took(time.monotonic() - question.asked)

    def save(self) -> None:
        """Write the state, whole or not at all. A full disk is no reason to stop answering."""
        try:
            self.adapter.save(self.state)
            self.saved_at = self.batches
        except SteepError:
            log.exception("the state was not saved")
