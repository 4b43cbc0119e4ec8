"""Mean, spread and distance to clean of every corruption and severity, against the committed table.

The table's `cifar10` part was measured over the 10,000 test images (`-m network` measures it again, with the real
sets in `tests/data/test_data_real.py`); its `patches` part over 500 natural patches,
which is what the test can remake anywhere. It does so with another seed, so that the tolerance has to be the
sampling error, and not zero.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from steep.corruptions import CORRUPTIONS, corrupt

TABLE = json.loads((Path(__file__).parent / "statistics.json").read_text())
PATCHES = 500
# Levels by which the three statistics may differ between two seeds over 500 patches. Frost picks one of five
# pictures per image and fog one cloud: few and large draws.
TOLERANCE = {"frost": 2.0, "fog": 1.5, "snow": 0.6, "spatter": 0.5, "elastic_transform": 0.5}


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_patches(name, severity, natural):
    images = natural(32, PATCHES)
    out = corrupt(images, name, severity, seed=1).astype(float)
    measured = [out.mean(), out.std(), abs(out - images).mean()]
    expected = TABLE["patches"]["severities"][name][severity - 1]
    assert measured == pytest.approx(expected, abs=TOLERANCE.get(name, 0.25))


def test_the_table_is_of_real_images_too():
    part = TABLE["cifar10"]
    assert part["images"] == 10_000
    assert part["frost"] == "imagecorruptions"
    # The mean level of the CIFAR-10 test images, known to everyone who normalised them.
    assert part["clean"][0] == pytest.approx(255 * np.mean([0.4942, 0.4851, 0.4504]), abs=0.1)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("part", ["cifar10", "patches"])
def test_severity_grows(part, name):
    """Distance to clean rises with severity; where it does not, the benchmark's own numbers say so."""
    apart = [row[2] for row in TABLE[part]["severities"][name]]
    if name in ("elastic_transform", "saturate", "spatter", "glass_blur", "motion_blur", "snow", "frost"):
        assert min(apart) > 0
    else:
        assert apart == sorted(apart)
