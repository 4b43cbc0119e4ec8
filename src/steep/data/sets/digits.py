"""The 8 × 8 digits that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steep.data.declaration import DataSet, Decoded, Part
from steep.data.transform import Transform
from steep.errors import DataError, install_extra

_TEST = 500  # of 1,797


def _read(split: str, root: Path, how: Transform) -> Decoded:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(f"digits come with scikit-learn. {install_extra('demo')}") from None
    bundle = load_digits()
    pixels = np.rint(bundle.images * (255 / 16)).astype(np.uint8)[..., None]  # 0..16 → 0..255
    order = np.random.RandomState(0).permutation(len(pixels))  # the frozen generator: the same split for ever
    rows = np.sort(order[:_TEST] if split == "test" else order[_TEST:])
    labels = bundle.target[rows].astype(np.int64)
    return Decoded(np.ascontiguousarray(pixels[rows]), labels, origin="bundled with scikit-learn")


DIGITS = DataSet(
    name="digits",
    title="Digits of scikit-learn",
    shape=(8, 8, 1),
    classes=tuple("0123456789"),
    class_count=10,
    parts={"train": Part(count=1_797 - _TEST), "test": Part(count=_TEST)},
    read=_read,
)
