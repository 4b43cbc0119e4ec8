from __future__ import annotations

import numpy as np
import pytest

from steep.corruptions import frost


@pytest.fixture(autouse=True)
def procedural_frost(request, monkeypatch):
    """No test touches the network or the user's cache: frost pictures are the procedural ones."""
    if "network" in request.keywords:
        yield
        return
    pictures = _procedural()
    monkeypatch.setattr(frost, "_pictures", lambda: ("procedural", pictures))
    frost.atlas.cache_clear()
    yield
    frost.atlas.cache_clear()


_cache = []


def _procedural():
    if not _cache:
        _cache.append(frost.procedural())
    return _cache[0]


def patches(side, count):
    """Cut natural patches from scikit-learn's two sample photographs, alternating, halved in size first."""
    datasets = pytest.importorskip("sklearn.datasets")
    photos = [photo[::2, ::2] for photo in datasets.load_sample_images().images]  # (213, 320, 3) each
    rng = np.random.default_rng(side)
    out = []
    for i in range(count):
        photo = photos[i % 2]
        row, column = (rng.integers(0, photo.shape[a] - side) for a in (0, 1))
        out.append(photo[row : row + side, column : column + side])
    return np.stack(out)


@pytest.fixture(scope="session")
def natural():
    """Natural patches: natural(side, count) -> uint8 (count, side, side, 3)."""
    return patches
