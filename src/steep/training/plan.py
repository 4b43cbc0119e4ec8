"""What a recipe would do, without doing it and without the data having to be here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from steep.data import default_root, load, status
from steep.data.known import data_set
from steep.training.run import build, load_start
from steep.training.spec import TrainingSpec


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
    if known.fetchable and known.shape is not None:
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
