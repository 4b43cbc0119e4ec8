"""The speed of the corruptions at 224 pixels on a GPU, from stored rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS.parent))

from benchmarks.corruptions import markdown  # noqa: E402


def at_224() -> str:
    """Pictures a second of each corruption."""
    lines = (DOCS / "corruptions_speed_224_h200.jsonl").read_text("utf-8").splitlines()
    return markdown([json.loads(line) for line in lines])
