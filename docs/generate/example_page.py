"""The examples as they lie in examples/, each under its name with its first line."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"


def examples() -> str:
    """Show every script whole."""
    lines = []
    for file in sorted(FOLDER.glob("*.py")):
        code = file.read_text(encoding="utf-8")
        first = (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0]
        lines += [f"## {file.name}", "", first, "", "```python", code.rstrip(), "```", ""]
    return "\n".join(lines)
