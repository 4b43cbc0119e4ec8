"""Data: sets by name, where their bytes come from, and the streams in which they reach a model."""

from __future__ import annotations

from steep.data.arrays import ImageSet
from steep.data.checking import Comparison, check
from steep.data.datasets import NAMES, load
from steep.data.layout import write
from steep.data.sources import default_root, fetch, status
from steep.data.streams import (
    PROTOCOLS,
    Batches,
    Segment,
    Shift,
    batches,
    continual,
    gradual,
    label_shift,
    label_shifted,
    limited_time,
    mixed,
    mixed_label_shifted,
    recurring,
    reset_per_shift,
    stream,
    to_device,
    to_floats,
)

__all__ = [
    "NAMES",
    "PROTOCOLS",
    "Batches",
    "Comparison",
    "ImageSet",
    "Segment",
    "Shift",
    "batches",
    "check",
    "continual",
    "default_root",
    "fetch",
    "gradual",
    "label_shift",
    "label_shifted",
    "limited_time",
    "load",
    "mixed",
    "mixed_label_shifted",
    "recurring",
    "reset_per_shift",
    "status",
    "stream",
    "to_device",
    "to_floats",
    "write",
]
