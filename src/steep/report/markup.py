"""HTML that is safe by construction: text is escaped unless this module made it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_VOID = ("meta", "input", "img")


class Html(str):
    """Markup; everything else is text and gets escaped."""


def el(tag: str, *children: object, **attributes: object) -> Html:
    """Make an element. None and False drop an attribute, True leaves it bare; `data_x` is `data-x`, `class_` `class`.

    >>> el("td", "a <b>", el("i", 1), class_="best", data_x='"')
    '<td class="best" data-x="&quot;">a &lt;b&gt;<i>1</i></td>'
    >>> el("input", type="range", disabled=True)
    '<input type="range" disabled>'
    """
    marks = ""
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        marks += f" {name}" if value is True else f' {name}="{escape(_visible(str(value)))}"'
    if tag in _VOID:
        return Html(f"<{tag}{marks}>")
    return Html(f"<{tag}{marks}>{join(*children)}</{tag}>")


def join(*children: object) -> Html:
    """Put children one after the other; text is escaped, None is nothing."""
    return Html("".join(_child(child) for child in children))


def table(name: str, heads: Iterable[object], rows: Iterable[Sequence[object]], kind: str = "", wide: str = "") -> Html:
    """Make a table in a region that scrolls sideways. What is no markup becomes a heading or a cell.

    Args:
        name: what a screen reader calls it.
        heads: one for each column.
        rows: of each row its cells, the first being the row's heading.
        kind: classes of the table.
        wide: more classes of the region.
    """
    head = el("tr", *(h if isinstance(h, Html) else el("th", h, scope="col") for h in heads))
    body = [
        el("tr", first if isinstance(first, Html) else el("th", first, scope="row"),
           *(cell if isinstance(cell, Html) and cell.startswith("<td") else el("td", cell) for cell in cells))
        for first, *cells in rows
    ]  # fmt: skip
    caption = el("caption", name, class_="sr")
    whole = el("table", caption, el("thead", head), el("tbody", *body), class_=kind or None)
    return el("div", whole, class_=f"wide {wide}".strip(), tabindex="0", role="region", aria_label=name)


def data(identity: str, value: Any) -> Html:
    """Put data into the page where a script finds it: no text in it can end the element or start another.

    >>> data("d", {"name": "</script>", "x": math.nan})
    '<script type="application/json" id="d">{"name":"\\\\u003c/script\\\\u003e","x":null}</script>'
    """
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Html(f'<script type="application/json" id="{escape(identity)}">{text}</script>')


def finite(value: Any) -> Any:
    """Give data as JSON has it: a number that is not finite is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _child(child: object) -> str:
    if child is None:
        return ""
    return child if isinstance(child, Html) else escape(_visible(str(child)))


def _visible(text: str) -> str:
    """Keep letters and line ends; other control characters are shown as such."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
