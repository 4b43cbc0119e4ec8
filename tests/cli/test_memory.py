"""Memory that was freed stays with the process: measured from outside, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np, sys
from pathlib import Path
from steep.cli.memory import keep_freed_memory

resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024  # MB
if sys.argv[1] == "keep":
    assert keep_freed_memory()
before = resident()
large = np.ones(16_000_000)  # 128 MB
now = resident()
del large
print(now - before, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory a process holds")
@pytest.mark.parametrize(("kept", "rest"), [("keep", 120), ("give back", 0)])
def test_a_large_block_stays_where_it_is_asked_for(kept: str, rest: int) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, kept], capture_output=True, text=True, check=True)
    grown, left = map(int, done.stdout.split())
    assert grown >= 120
    assert rest <= left <= rest + 15
