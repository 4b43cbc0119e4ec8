"""The training loop. SGD on random crops and mirror images; everything else is a recipe's decision.

No step waits for the device: pictures live there as bytes, losses are summed there and read about once a second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from steep import metrics
from steep.core.classifier import as_logits
from steep.data import to_floats
from steep.errors import CheckpointError, InputError
from steep.files import explained, file_sha256, make_folder, read_json, write_json
from steep.models import checkpoints
from steep.models.loading import short_name
from steep.provenance import commit, device_name, versions
from steep.training.augment import crops, draw
from steep.training.run import Run, Split, memory_format, refuse_other
from steep.training.spec import TrainingSpec

_REPORT_SECONDS = 1.0
_CHEAP = 50  # a checkpoint at an epoch's end may cost one part in so many of the time since the last


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is. Accuracies are fractions: of this epoch's training pictures, and of the last test."""

    epoch: int  # being trained, from 1
    epochs: int
    done: int  # steps
    total: int
    loss: float
    train_accuracy: float
    test_accuracy: float | None
    seconds: float
    remaining: float  # seconds, at the pace so far


@dataclass(frozen=True)
class Trained:
    """A finished run: the weights, the row written beside them, and whether they were there already."""

    weights: Path
    row: dict[str, Any]
    was_there: bool = False


def checkpoint_path(out: str | os.PathLike[str]) -> Path:
    """Return where the run that will write `out` keeps its checkpoint.

    >>> checkpoint_path("net.safetensors").name
    'net.checkpoint.safetensors'
    """
    return Path(out).with_suffix(".checkpoint.safetensors")


def train(
    spec: TrainingSpec,
    out: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    resume: bool = True,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Trained:
    """Train a source model and write it to `out` (.safetensors), with its training row as JSON beside it.

    Every few minutes, at the end of an epoch where that is cheap, and on Ctrl-C the run is put on disk
    (`checkpoint_path`). The same call goes on from there; on a CPU with as many threads it then ends with the same
    weights, bit for bit, as a run that was never stopped. A finished run is left as it is.

    Args:
        spec: what to train.
        out: the finished file.
        root: where data lives, by default `STEEP_DATA` or the user's cache folder.
        device: where to train.
        resume: whether to go on from a checkpoint or finished weights; if False, they are an error.
        progress: called about once a second and after each epoch.

    >>> import tempfile
    >>> spec = TrainingSpec.from_recipe("train-digits", {"epochs": 1, "warmup_epochs": 0, "limit": 128})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trained = train(spec, f"{folder}/digits.safetensors")
    ...     sorted(path.name for path in trained.weights.parent.iterdir())
    ['digits.json', 'digits.safetensors']
    >>> trained.row["data"], trained.row["epochs"], trained.row["seed"]
    ('digits', 1, 0)
    """
    out, device = Path(out), torch.device(device)
    if out.suffix != ".safetensors":
        raise InputError(f"out: expected a name ending in .safetensors, got {out.name!r}")
    checkpoint = checkpoint_path(out)
    if not resume and (out.exists() or checkpoint.exists()):
        file = checkpoint if checkpoint.exists() else out
        raise CheckpointError(f"{file}: exists. Delete it, choose another --out, or leave out --no-resume to go on")
    run = Run.start(spec, None if root is None else Path(root), device)
    with explained(out):
        make_folder(out.parent)  # now, not after hours of training
    if out.exists() and not checkpoint.exists():
        refuse_other(out, _recorded_fingerprint(out), run.fingerprint())
        return Trained(out, read_json(out.with_suffix(".json")), was_there=True)
    with _surroundings(run), _DeferredInterrupt() as interrupt:
        if checkpoint.exists():
            run.restore(checkpoint)
        if device_name(device) not in run.devices:
            run.devices.append(device_name(device))
        _Loop(run, checkpoint, progress, interrupt).go()
        trained = _finish(run, out)
    checkpoint.unlink(missing_ok=True)
    interrupt.pass_on()  # one that came while the weights were written
    return trained


def _recorded_fingerprint(weights: Path) -> dict[str, Any]:
    """Read from finished weights what they were trained with; nothing where they do not tell."""
    try:
        fingerprint = json.loads(checkpoints.read(weights).metadata.get("run", "{}"))
    except (ValueError, RecursionError):
        return {}
    return fingerprint if isinstance(fingerprint, dict) else {}


def learning_rate(step: int, *, total: int, warmup: int, peak: float) -> float:
    """Give the rate of one step out of `total`: a linear warm-up, then half a cosine down to zero.

    The first step is 0; the peak comes with the last step of the warm-up, so the first step already moves
    (Loshchilov & Hutter, ICLR 2017).

    >>> [learning_rate(step, total=6, warmup=2, peak=0.4) for step in range(3)]
    [0.2, 0.4, 0.4]
    >>> round(learning_rate(4, total=6, warmup=2, peak=0.4), 3)
    0.2
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (total - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))


class _DeferredInterrupt(contextlib.ExitStack):
    """Inside its block SIGINT and SIGTERM wait until `pass_on`, as half a step could not be resumed from.

    The second one gets through.
    """

    received: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self.callback(signal.signal, number, signal.signal(number, self._remember))
        return super().__enter__()

    def pass_on(self) -> None:
        self.close()
        if self.received is not None:
            signal.raise_signal(self.received)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self.close()
            signal.raise_signal(number)
        self.received = number


class _Loop:
    """Takes the steps; knows the time, when to report and when to put the run on disk."""

    def __init__(
        self, run: Run, checkpoint: Path, progress: Callable[[Progress], None], interrupt: _DeferredInterrupt
    ) -> None:
        self.run, self.spec, self.checkpoint = run, run.spec, checkpoint
        self.progress, self.interrupt = progress, interrupt
        self.total = self.spec.epochs * run.steps
        self.warmup = round(self.spec.warmup_epochs * run.steps)
        compiled = self.spec.compile and run.device.type == "cuda"
        self.forward: Callable[[Tensor], Any] = torch.compile(run.model) if compiled else run.model
        now = time.monotonic()
        self.began, self.began_at, self.earlier = now, run.done, run.seconds
        self.reported = self.saved = now
        self.cost = 0.0  # seconds the last checkpoint took

    def go(self) -> None:
        run = self.run
        while run.epoch < self.spec.epochs:
            self._epoch()
            row = {"epoch": run.epoch + 1, "loss": self._loss(), "train_accuracy": self._accuracy()}
            last = run.epoch + 1 == self.spec.epochs  # which `_finish` measures, with the weights as stored
            if not last and (run.epoch + 1) % self.spec.evaluate_every == 0:
                row["test_accuracy"] = evaluate(run.model, run.test, self.spec, autocast=True)
            run.seconds = self.earlier + time.monotonic() - self.began
            run.history.append({**row, "seconds": round(run.seconds, 3)})
            self._report()
            run.epoch, run.step = run.epoch + 1, 0
            run.loss.zero_()
            run.correct.zero_()
            self._maybe_save(epoch_ends=True)

    def _epoch(self) -> None:
        run, spec = self.run, self.spec
        size = spec.batch_size
        draws = draw(
            len(run.train.labels), seed=spec.seed, epoch=run.epoch, pad=spec.pad, flip=spec.flip, device=run.device
        )
        run.model.train()
        while run.step < run.steps:
            batch = draws.batch(run.step * size, (run.step + 1) * size)
            x = to_floats(crops(run.train.images, batch, spec.pad), memory_format=memory_format(spec))
            self._step(x, run.train.labels[batch.order])
            run.step += 1
            now = time.monotonic()
            if now - self.reported >= _REPORT_SECONDS:
                self._report()
            self._maybe_save()

    def _step(self, x: Tensor, y: Tensor) -> None:
        run, spec = self.run, self.spec
        rate = learning_rate(run.done, total=self.total, warmup=self.warmup, peak=spec.lr)
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        with _autocast(spec, run.device):
            logits = self._answer(x)
        loss = F.cross_entropy(logits.float(), y, label_smoothing=spec.label_smoothing)
        run.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        run.optimizer.step()
        run.loss += loss.detach()
        run.correct += (logits.detach().argmax(dim=1) == y).sum()

    def _answer(self, x: Tensor) -> Tensor:
        try:
            return as_logits(self.forward(x))
        except Exception as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                why = f"torch.compile cannot work here ({type(error).__name__})"
                raise InputError(f"{why}. Run again with --set compile=false") from error
            raise

    def _loss(self) -> float:
        """Read the mean loss of the epoch so far; this waits for the device."""
        mean = float(self.run.loss) / max(self.run.step, 1)
        if not math.isfinite(mean):
            raise InputError(
                f"training diverged in epoch {self.run.epoch + 1} (loss {mean}). "
                f"Lower lr ({self.spec.lr:g}) or raise warmup_epochs ({self.spec.warmup_epochs:g})"
            )
        return mean

    def _accuracy(self) -> float:
        return int(self.run.correct) / max(self.run.step * self.spec.batch_size, 1)

    def _report(self) -> None:
        run, now = self.run, time.monotonic()
        self.reported = now
        tested = [row["test_accuracy"] for row in run.history if "test_accuracy" in row]
        here = run.done - self.began_at
        self.progress(
            Progress(
                epoch=run.epoch + 1,
                epochs=self.spec.epochs,
                done=run.done,
                total=self.total,
                loss=self._loss(),
                train_accuracy=self._accuracy(),
                test_accuracy=tested[-1] if tested else None,
                seconds=self.earlier + now - self.began,
                remaining=(self.total - run.done) * (now - self.began) / max(here, 1),
            )
        )

    def _maybe_save(self, epoch_ends: bool = False) -> None:
        since = time.monotonic() - self.saved
        due = since >= 60 * self.spec.checkpoint_minutes or (epoch_ends and since >= _CHEAP * self.cost)
        if not due and self.interrupt.received is None:
            return
        self._loss()  # never put a diverged run over a good checkpoint
        started = time.monotonic()
        self.run.seconds = self.earlier + started - self.began
        self.run.save(self.checkpoint)
        self.saved = time.monotonic()
        self.cost = self.saved - started
        if self.interrupt.received is not None:
            self.interrupt.pass_on()


@torch.no_grad()
def evaluate(model: nn.Module, split: Split, spec: TrainingSpec, *, autocast: bool = False) -> float:
    """Measure the accuracy on a split as it is, without crops, in float32 unless `autocast`."""
    model.eval()
    answers = []
    for pixels in torch.split(split.images, spec.batch_size):
        with _autocast(spec, pixels.device) if autocast else contextlib.nullcontext():
            answers.append(as_logits(model(to_floats(pixels, memory_format=memory_format(spec)))).float())
    return metrics.accuracy(torch.cat(answers), split.labels)


@torch.no_grad()
def _finish(run: Run, out: Path) -> Trained:
    """Measure the weights as they will be stored, then write them and their row."""
    spec = run.spec
    dtype = {"fp16": torch.float16, "fp32": None}[spec.store]
    if dtype is not None:
        for tensor in run.model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor.to(dtype))
    accuracy = evaluate(run.model, run.test, spec)
    run.history[-1]["test_accuracy"] = accuracy
    train, test = run.train.source, run.test.source
    row: dict[str, Any] = {
        "recipe": spec.recipe,
        "architecture": short_name(spec.model),
        "data": spec.data if spec.domain is None else f"{spec.data}/{spec.domain}",
        "data_digest": train.digest,
        "test_digest": test.digest,
        "classes": list(train.classes),
        "image_shape": list(test.images.shape[1:]),  # (H, W, C)
        "train_images": len(train),
        "test_images": len(test),
        "accuracy": accuracy,
        "epochs": spec.epochs,
        "seed": spec.seed,
        "seconds": round(run.seconds, 3),
        "device": ", then ".join(run.devices),
        "precision": "bf16" if _bf16(spec, run.device) else "fp32",
        "store": spec.store,
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "versions": versions(),
        "commit": commit(),
        "run": run.fingerprint(),
    }
    # A safetensors header takes strings alone.
    header = {k: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for k, v in row.items() if v is not None}
    checkpoints.save(run.model, out, header, dtype=dtype)
    size = {"bytes": out.stat().st_size, "weights_sha256": file_sha256(out)}  # as a row of the bench names them
    row |= {"spec": spec.plain(), **size, "history": run.history}
    write_json(out.with_suffix(".json"), row)
    return Trained(out, row)


def _bf16(spec: TrainingSpec, device: torch.device) -> bool:
    return spec.precision == "bf16" or (spec.precision == "auto" and device.type == "cuda")


def _autocast(spec: TrainingSpec, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=_bf16(spec, device))


@contextlib.contextmanager
def _surroundings(run: Run) -> Iterator[None]:
    """Set torch's random stream, threads and kernels as the run needs them, and give them back afterwards."""
    benchmark, threads = torch.backends.cudnn.benchmark, torch.get_num_threads()
    torch.backends.cudnn.benchmark = True  # every batch has one shape: trying kernels pays
    torch.set_num_threads(run.spec.threads or threads)
    try:
        with torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else []):
            torch.manual_seed(run.spec.seed)  # for dropout
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.set_num_threads(threads)
