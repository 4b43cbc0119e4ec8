"""Where a benchmark's rows go: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def append(path: Path | None, row: dict[str, Any]) -> None:
    """Add a row to a file, if there is one."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
