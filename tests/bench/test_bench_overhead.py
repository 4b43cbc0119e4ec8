"""The harness must not be what a GPU waits for. Measured on a WRN-28-10, where the paper's grids spend their time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.gpu
def test_a_gpu_bound_cell_costs_less_than_three_percent_over_the_bare_loop() -> None:
    from overhead import measure

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = measure("cuda", 2000, "wrn-28-10", "tf32")
    assert found["tea"]["overhead"] < 0.03, found
