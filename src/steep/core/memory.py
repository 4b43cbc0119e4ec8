"""A memory of images, balanced by class, that prefers recent and certain ones (category-balanced sampling of RoTTA)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steep.core.losses import entropy
from steep.errors import CheckpointError, InputError


class Item(NamedTuple):
    """What is known of an image in the memory."""

    place: int
    label: int
    uncertainty: float  # entropy of its prediction, as a share of the greatest there can be
    age: int  # images that came since it did


class ClassMemory:
    """At most `size` images. Each class may fill its even share; what is old and uncertain makes room first.

    Which image goes is decided on the host, which needs its label; images stay on the device. The items are replaced
    and never written to, so that a step is undone by keeping the old ones.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: tuple[Item, ...] = ()  # in the order they came
        self.images: Tensor | None = None  # (size, C, H, W), from the first image on
        self.journal: list[tuple[Tensor, Tensor, Tensor]] | None = None

    def add(self, x: Tensor, logits: Tensor) -> None:
        """Offer the images x (B, C, H, W), one after the other; each finds a place or is left out.

        The host waits for their logits (B, K): the largest is the label, the entropy says how uncertain it is.
        """
        if self.images is None:
            self.images = x.new_zeros((self.size, *x.shape[1:]))
        elif self.images.shape[1:] != x.shape[1:]:
            raise InputError(
                f"images: expected {tuple(self.images.shape[1:])} as in this stream so far, got {tuple(x.shape[1:])}. "
                "The memory holds images of one size: call reset() before another stream."
            )
        self.images = self.images.to(x)  # they may have come from a file
        classes, writes = logits.shape[1], {}
        labels, uncertainties = logits.argmax(dim=1).tolist(), (entropy(logits) / math.log(classes)).tolist()
        for index, (label, uncertainty) in enumerate(zip(labels, uncertainties, strict=True)):
            new = Item(-1, label, uncertainty, 0)
            place = self._room(new, classes)
            if place is not None:
                writes[place] = index
                self.items = (*(item for item in self.items if item.place != place), new._replace(place=place))
            self.items = tuple(item._replace(age=item.age + 1) for item in self.items)
        if writes:
            places, indices = (torch.tensor([*part], device=x.device) for part in (writes, writes.values()))
            if self.journal is not None:
                self.journal.append((self.images, places, self.images[places]))
            self.images[places] = x[indices]

    def _room(self, new: Item, classes: int) -> int | None:
        """Find the place that a new image may take; None if what is there is worth more."""
        counts = Counter(item.label for item in self.items)
        if counts[new.label] >= self.size / classes:
            rivals = [item for item in self.items if item.label == new.label]
        elif len(self.items) < self.size:
            taken = {item.place for item in self.items}
            return next(place for place in range(self.size) if place not in taken)
        else:
            most = max(counts.values())
            rivals = sorted((item for item in self.items if counts[item.label] == most), key=lambda item: item.label)
        worst: Item = max(reversed(rivals), key=self.worthlessness)  # of equals the last
        return worst.place if self.worthlessness(worst) > self.worthlessness(new) else None

    def worthlessness(self, item: Item) -> float:
        """Grows with age and uncertainty."""
        return 1 / (1 + math.exp(-item.age / self.size)) + item.uncertainty

    def content(self) -> tuple[Tensor, Tensor]:
        """Give all images (n, C, H, W), class by class, and their ages (n,) in units of the memory's size."""
        if self.images is None:
            raise InputError("memory: expected images to be added before they are asked for")
        items = sorted(self.items, key=lambda item: item.label)
        ages = [item.age / self.size for item in items]
        places = torch.tensor([item.place for item in items], device=self.images.device, dtype=torch.int64)
        return self.images[places], torch.tensor(ages, device=self.images.device, dtype=self.images.dtype)

    def snapshot(self) -> dict[str, Any]:
        """Copy the images and what is known of them."""
        images = None if self.images is None else self.images.clone()
        return {"images": images, "items": [list(item) for item in self.items]}

    def check_saved(self, where: str, saved: Any) -> None:
        """Refuse what is no content of a memory of this size."""
        images, rows = (saved.get("images"), saved.get("items")) if isinstance(saved, Mapping) else (None, None)
        tensor = images is None or (isinstance(images, Tensor) and images.ndim == 4 and images.is_floating_point())
        if not tensor or not isinstance(rows, list) or not all(map(_is_item, rows)):
            raise CheckpointError(f"state: {where}: expected the content of a memory, got something else")
        places = [row[0] for row in rows]
        if len({*places}) < len(places) or any(place >= self.size for place in places):
            raise CheckpointError(f"state: {where}: expected different places below {self.size}, got {places}")
        if rows if images is None else len(images) != self.size:
            raise CheckpointError(f"state: {where}: expected {self.size} images, got another number")

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Bring back a snapshot."""
        images = saved["images"]
        self.images = None if images is None else images.clone()  # not in place: then this is undone by reference
        self.items = tuple(Item(*row) for row in saved["items"])

    def tensors(self) -> list[Tensor | None]:
        """List the tensors in use: a recorded graph must notice when one is replaced."""
        return [self.images]


def _is_item(row: Any) -> bool:
    if not isinstance(row, (list, tuple)) or len(row) != len(Item._fields):
        return False
    place, label, uncertainty, age = row
    whole = all(type(value) is int and value >= 0 for value in (place, label, age))
    return whole and isinstance(uncertainty, float) and math.isfinite(uncertainty)
