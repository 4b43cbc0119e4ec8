"""What a recipe would do, without doing it and without the data having to be here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from steep.data import default_root, load, status
from steep.data.known import data_set
from steep.training.run import build
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

    >>> found = plan(TrainingSpec.from_recipe("train-cifar10-wrn-40-2"))
    >>> found.parameters, found.classes, found.image_shape
    (2243546, 10, (3, 32, 32))
    """
    images, classes, shape, data = _look(spec, root or default_root())
    if spec.limit is not None:
        images = min(images, spec.limit)
    side = (spec.size, spec.size) if spec.size else shape[:2]
    channels = spec.channels or shape[2]
    with torch.device("meta"):
        model = build(spec, classes, channels)
        model(torch.empty(2, channels, *side))
    steps = images // spec.batch_size
    parameters = sum(p.numel() for p in model.parameters())
    return Plan(
        train_images=images,
        classes=classes,
        image_shape=(channels, *side),
        parameters=parameters,
        steps=steps,
        total_steps=steps * spec.epochs,
        file_bytes=sum(t.numel() for t in model.state_dict().values()) * (2 if spec.store == "fp16" else 4),
        data=data,
    )


def _look(spec: TrainingSpec, root: Path) -> tuple[int, int, tuple[int, int, int], str]:
    """Count pictures and classes and measure one picture (H, W, C), by the set's published facts if it has some."""
    known = data_set(spec.data)
    part = known.part(spec.train_split, spec.domain)
    if not known.fetchable or known.shape is None:  # bundled or the user's own: small, or here anyway
        images = load(spec.data, spec.train_split, root, size=spec.size)
        height, width, channels = images.images.shape[1:]
        return len(images), len(images.classes), (height, width, channels), "ready"
    states = {row.part: row.state for row in status(spec.data, root)}
    here = states[part] in ("ready", "files found")
    data = states[part] if here else f"{states[part]}. Run: steep data fetch {spec.data}"
    return known.count(spec.train_split, spec.domain), known.class_count, known.shape, data
