"""The speed table of the docs is the stored rows, printed by the benchmark, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "docs" / "corruptions_speed.jsonl"
LARGE = ROOT / "docs" / "corruptions_speed_224.jsonl"


@pytest.mark.parametrize("rows", [ROWS, LARGE], ids=["32", "224"])
def test_the_table_is_printed_from_the_rows(rows):
    command = [sys.executable, str(ROOT / "benchmarks" / "corruptions.py"), "--table", str(rows)]
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


def test_at_224_pixels_the_15_take_a_twentieth_of_the_scripts_time():
    rows = [json.loads(line) for line in LARGE.read_text().splitlines()]
    assert len({(row["corruption"], row["severity"]) for row in rows}) == len(rows) == 15 * 5
    assert {(row["side"], row["threads"], row["clock"]) for row in rows} == {(224, 1, "processor")}
    theirs, ours = (sum(1 / row[key] for row in rows) for key in ("original_images_per_s", "images_per_s"))
    assert theirs / ours >= 20
