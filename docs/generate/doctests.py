"""Doctests in docstrings are code: fenced, or else Markdown takes `>>>` for a quotation and `[…](…)` for a link."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """Put each run of doctest lines, with what they print, between fences."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            inside = True
            out.append("```pycon")
        elif inside and not line.strip():
            inside = False
            out.append("```")
        out.append(line)
    return "\n".join([*out, "```"] if inside else out)


class Doctests(griffe.Extension):
    """Called by griffe for everything it reads."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of a docstring, before it is parsed."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
