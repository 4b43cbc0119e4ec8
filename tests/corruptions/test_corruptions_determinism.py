"""The same seed gives the same bytes, however the set is cut up and whatever computes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steep.corruptions import CORRUPTIONS, apply, corrupt

COUNT = 200


def cut(images, name, severity, size):
    parts = range(0, len(images), size)
    return np.concatenate([corrupt(images[i : i + size], name, severity, seed=3, first=i) for i in parts])


@pytest.mark.parametrize("severity", [2, 5])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_batch_size_does_not_matter(name, severity, natural):
    images = natural(32, COUNT)
    whole = cut(images, name, severity, COUNT)
    assert (cut(images, name, severity, 7) == whole).all()
    assert (cut(images[:12], name, severity, 1) == whole[:12]).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_chunk_size_does_not_matter(name, natural, monkeypatch):
    images = natural(32, 24)
    whole = cut(images, name, 3, 24)
    monkeypatch.setattr(apply, "CPU_PIXELS", 5 * 1024)
    assert (cut(images, name, 3, 24) == whole).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_thread_count_does_not_matter(name, natural):
    images = natural(32, 64)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(cut(images, name, 5, 64))
    finally:
        torch.set_num_threads(before)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_order_does_not_matter(name, natural):
    images = natural(32, 10)
    last = corrupt(images[9:], name, 4, first=9)
    assert (corrupt(images, name, 4)[9:] == last).all()


@pytest.mark.gpu
@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_cpu_and_gpu_agree(name, side):
    # Smooth random pictures, not photographs: a machine with a GPU need not have scikit-learn.
    coarse = torch.rand(100, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")
    images = (fine * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    for severity in range(1, 6):
        ours = corrupt(images, name, severity, seed=3)
        theirs = corrupt(images.cuda(), name, severity, seed=3)
        assert theirs.is_cuda
        assert (ours.int() - theirs.cpu().int()).abs().max() <= 1
