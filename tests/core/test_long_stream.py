"""A continual stream of 200,000 images: what collapses without a guard, what holds with one, and flat memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import long_stream

pytestmark = pytest.mark.slow
IMAGES, BATCH = 200_000, 200


@pytest.fixture(scope="module")
def model():
    return long_stream.trained()


@pytest.fixture(scope="module")
def source(model) -> float:
    return long_stream.run(model, "source", "off", IMAGES // 10, BATCH, "cpu")["accuracy"]


def test_an_overheated_tent_collapses_and_the_guard_brings_it_back(model, source):
    lost = long_stream.run(model, "tent-hot", "off", IMAGES, BATCH, "cpu")
    kept = long_stream.run(model, "tent-hot", "recover", IMAGES, BATCH, "cpu")
    assert lost["curve"][0] > source + 0.1  # it learns at first
    assert lost["curve"][-1] < source - 0.2
    assert kept["accuracy"] > source
    assert kept["recoveries"] > 0


@pytest.mark.parametrize("variant", ["tent", "shot", "eta", "sar", "tea"])
def test_every_gradient_method_holds_and_its_memory_stays_flat(model, source, variant):
    row = long_stream.run(model, variant, "recover", IMAGES, BATCH, "cpu")
    assert min(row["curve"]) > source
    assert row["bytes"][-1] < 1.1 * row["bytes"][2]
