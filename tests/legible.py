"""How tall the letters of a chart are on a phone: there a picture is as wide as the page, 358 pixels of 390."""

from __future__ import annotations

import re
from typing import Any

from steep.report.export import render

PHONE = 358
LEAST = 10
"""What can still be read, in pixels."""


def smallest(spec: dict[str, Any]) -> float:
    """The height of the smallest letters of a chart that is no wider than a phone."""
    svg = render("svg")(spec).decode()
    width = re.search(r'<svg[^>]* width="([\d.]+)"', svg)
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg)]
    assert width
    assert sizes
    return min(sizes) * min(1.0, PHONE / float(width[1]))
