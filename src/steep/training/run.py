"""A training run in memory: the model, its optimiser and the place it has come to, all of which can be put on disk.

`plan` says what a recipe would do, without doing it and without the data having to be here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steep import models, sealed
from steep.data import ImageSet, default_root, load, status
from steep.data.known import data_set
from steep.errors import CheckpointError, InputError
from steep.models import checkpoints
from steep.models.loading import PRETRAINED, LoadedModel, load_model, with_head
from steep.training.augment import padded
from steep.training.spec import Border, TrainingSpec
from steep.training.weights import weights_file

KIND = "a training run"  # of its checkpoint
_PLACE = ("epoch", "step", "seconds", "history", "devices")  # what a checkpoint holds besides tensors


@dataclass(frozen=True)
class Split:
    """One split on the device: `images` uint8 (N, H, W, C), the training ones padded; `labels` (N,)."""

    source: ImageSet
    images: Tensor
    labels: Tensor

    @classmethod
    def on(cls, device: torch.device, source: ImageSet, pad: int = 0, border: Border = "zeros") -> Split:
        """Move a set to the device as it is, bytes, and pad it there."""
        images = torch.from_numpy(np.array(source.images)).to(device)  # a copy: the set may be a read-only map
        return cls(source, padded(images, pad, border), torch.from_numpy(np.array(source.labels)).to(device))


@dataclass
class Run:
    """Everything that moves while training."""

    spec: TrainingSpec
    device: torch.device
    train: Split
    test: Split
    model: nn.Module
    optimizer: torch.optim.SGD
    loss: Tensor  # summed over the steps of this epoch, on the device: nobody waits for it
    correct: Tensor  # pictures answered rightly in this epoch, likewise
    epoch: int = 0
    step: int = 0  # inside the epoch
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    start_sha256: str | None = None  # of the weights it starts from, where those were loaded

    @property
    def steps(self) -> int:
        """Steps of an epoch; the pictures of an incomplete last batch wait for another epoch's order."""
        return len(self.train.labels) // self.spec.batch_size

    @property
    def done(self) -> int:
        """Steps taken so far."""
        return self.epoch * self.steps + self.step

    @classmethod
    def start(cls, spec: TrainingSpec, root: Path | None, device: torch.device) -> Run:
        """Load the data and make the model of the spec's seed, the same on every device."""
        loaded = load_start(spec)
        size = None if loaded is None else loaded.size
        train, test = (_load(spec, split, root, size) for split in (spec.train_split, spec.test_split))
        if len(train) < spec.batch_size:
            most = f"at most the {len(train)} training pictures there are"
            raise InputError(f"recipe {spec.recipe}: batch_size: expected {most}, got {spec.batch_size}")
        model = build(spec, len(train.classes), train.images.shape[3], loaded)
        start_sha256 = None if loaded is None else checkpoints.digest(model)
        model = model.to(device=device, memory_format=memory_format(spec))  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=spec.lr,
            momentum=spec.momentum,
            nesterov=spec.nesterov,
            weight_decay=spec.weight_decay,
            fused=device.type == "cuda",
        )
        return cls(
            spec,
            device,
            Split.on(device, train, spec.pad, spec.border),
            Split.on(device, test),
            model,
            optimizer,
            loss=torch.zeros((), device=device),
            correct=torch.zeros((), dtype=torch.int64, device=device),
            start_sha256=start_sha256,
        )

    def fingerprint(self) -> dict[str, Any]:
        """Say what a checkpoint has to agree on to be this run's."""
        start = {} if self.start_sha256 is None else {"start_sha256": self.start_sha256}
        return {**self.spec.identity(), "data_digest": self.train.source.digest, **start}

    def save(self, path: Path) -> None:
        """Put everything that moves on disk. The order and the crops of the epoch follow from its number."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            momentum = self.optimizer.state[parameter].get("momentum_buffer")
            if momentum is not None:
                tensors[f"momentum.{name}"] = momentum
        tensors |= {"loss": self.loss, "correct": self.correct, "random.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        sealed.write(path, KIND, tensors, {"run": self.fingerprint(), **{name: getattr(self, name) for name in _PLACE}})

    @torch.no_grad()
    def restore(self, path: Path) -> None:
        """Go back to where `save` was called; a checkpoint of another recipe, data or model is refused."""
        tensors, facts = sealed.read(path, KIND)
        refuse_other(path, facts.get("run", {}), self.fingerprint())
        saved = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        try:
            self.model.load_state_dict(saved)
            for name, parameter in self.model.named_parameters():
                if f"momentum.{name}" in tensors:
                    momentum = tensors[f"momentum.{name}"]
                    if momentum.shape != parameter.shape:  # a fused optimiser would write beyond it
                        raise ValueError(f"momentum of {name} has shape {tuple(momentum.shape)}")
                    self.optimizer.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)
            self.loss.copy_(tensors["loss"])
            self.correct.copy_(tensors["correct"])
            for name in _PLACE:
                setattr(self, name, facts[name])
            torch.set_rng_state(tensors["random.cpu"])
            if self.device.type == "cuda" and "random.cuda" in tensors:
                torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            misfit = f"does not fit this version's {self.spec.model}: {error}"
            raise CheckpointError(f"{path}: {misfit}. Delete it to begin again") from error


def refuse_other(path: Path, recorded: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise if a file was made with another recipe than the one to run now, naming what differs."""
    recorded = {"border": "zeros", **recorded}  # a file older than the key: all borders were black
    if differ := [key for key in {**recorded, **expected} if recorded.get(key) != expected.get(key)]:
        pairs = ((key, json.dumps(recorded.get(key)), json.dumps(expected.get(key))) for key in differ[:4])
        shown = "; ".join(f"{key} = {before}, now {now}" for key, before, now in pairs)
        fix = "Choose another --out, or delete it to begin again"
        raise CheckpointError(f"{path}: made with another recipe or data ({shown}). {fix}")


def memory_format(spec: TrainingSpec) -> torch.memory_format:
    """Return how the model and its images lie in memory."""
    return torch.channels_last if spec.channels_last else torch.contiguous_format


def load_start(spec: TrainingSpec) -> LoadedModel | None:
    """Load the model to fine-tune; None where the spec's model starts from random weights."""
    if not spec.loads:
        return None
    file = None if spec.init in (None, PRETRAINED) else weights_file(spec.init)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)  # a factory may bring no weights
        return load_model(spec.model, weights=file, pretrained=spec.init == PRETRAINED)


def build(spec: TrainingSpec, num_classes: int, in_channels: int, loaded: LoadedModel | None = None) -> nn.Module:
    """Make the spec's model with weights that its seed decides, leaving torch's own random stream alone.

    Of a loaded model the seed decides the last layer, where its classes are others.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec.seed)
        if loaded is not None:
            return with_head(loaded.model, num_classes)
        return models.build(spec.model, num_classes, in_channels=in_channels, **spec.model_options)


def _load(spec: TrainingSpec, split: str, root: Path | None, size: int | None) -> ImageSet:
    how = {"limit": spec.limit, "size": spec.size or size, "channels": spec.channels, "domain": spec.domain}
    return load(spec.data, split, root, stream=False, **how)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A recipe worked out: sizes, counts and whether its data is here."""

    train_images: int
    classes: int
    image_shape: tuple[int, int, int]  # (C, H, W)
    parameters: int
    steps: int  # of one epoch
    total_steps: int
    file_bytes: int  # of the finished weights, nearly
    data: str  # "ready", or what to do about it


def plan(spec: TrainingSpec, root: Path | None = None) -> Plan:
    """Work a recipe out: its model is built without memory, its data is only looked at.

    >>> work = plan(TrainingSpec.from_recipe("train-cifar10-wrn-40-2"))
    >>> work.parameters, work.classes, work.image_shape
    (2243546, 10, (3, 32, 32))
    """
    root, loaded = root or default_root(), load_start(spec)
    known = data_set(spec.data)
    part = known.part(spec.train_split, spec.domain)
    if known.archives and known.shape is not None:
        images, classes, shape = known.count(spec.train_split, spec.domain), known.class_count, known.shape
        state = next(row.state for row in status(spec.data, root) if row.part == part)
        data = state if state in ("ready", "files found") else f"{state}. Run: steep data fetch {spec.data}"
    else:  # bundled or the user's own: small, or here anyway
        train = load(spec.data, spec.train_split, root, size=spec.size, domain=spec.domain)
        images, classes, data = len(train), len(train.classes), "ready"
        shape = (train.images.shape[1], train.images.shape[2], train.images.shape[3])
    images = min(images, spec.limit or images)
    size = spec.size or (loaded.size if loaded else None)
    side = (size, size) if size else shape[:2]
    channels = spec.channels or shape[2]
    with torch.device("cpu" if loaded else "meta"):
        model = build(spec, classes, channels, loaded)
        model.eval()(torch.empty(2, channels, *side))
    steps = images // spec.batch_size
    return Plan(
        train_images=images,
        classes=classes,
        image_shape=(channels, *side),
        parameters=sum(p.numel() for p in model.parameters()),
        steps=steps,
        total_steps=steps * spec.epochs,
        file_bytes=sum(t.numel() for t in model.state_dict().values()) * (2 if spec.store == "fp16" else 4),
        data=data,
    )
