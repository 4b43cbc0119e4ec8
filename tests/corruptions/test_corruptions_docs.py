"""The speed table of the docs is the stored rows, printed by the benchmark, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "docs" / "corruptions_speed.jsonl"


def test_the_table_is_printed_from_the_rows():
    command = [sys.executable, str(ROOT / "benchmarks" / "corruptions.py"), "--table", str(ROWS)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| benchmark (15) |" in printed
    assert printed in (ROOT / "docs" / "corruptions.md").read_text()


def test_rows_name_their_frost_and_reach_the_goals():
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    assert all(row["frost"] in ("imagecorruptions", "procedural") for row in rows)
    assert all({"commit", "repeats", "cores"} <= set(row) for row in rows if "H200" not in row["device"])
    real = {
        (row["device"], row["threads"], row["corruption"]): row["images_per_s"]
        for row in rows
        if row["frost"][0] == "i"
    }
    assert real["AMD EPYC", 2, "benchmark (15)"] > 7_500
    assert all(
        rate > 100_000 for (device, _, name), rate in real.items() if "H200" in device and name == "all but JPEG"
    )
