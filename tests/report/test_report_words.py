"""Numbers, names and files as people write them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from made_rows import row
from steep.methods import METHODS
from steep.metrics import SeedSummary
from steep.report import export, runs, words
from steep.report.charts.style import REAL, colour, family, spoken
from steep.report.formats import harmless, spread
from steep.report.rerun import toml
from steep.report.tables import build

COMMIT = "1c0a1c726cc5e6faf4d63c410c3a95483c552f7e"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (words.number(83.337), "83.34"),
        (words.number(None), "–"),  # what is missing is never a zero
        (words.number(math.nan), "NaN"),
        (words.signed(0.5), "+0.50"),
        (words.signed(-0.5), "−0.50"),
        (words.signed(-0.001), "0.00"),
        (words.signed(None), "–"),
        (words.counted([2000, 10000]), "2,000 to 10,000"),
        (words.counted([10]), "10"),
        (words.plain("tea\n\x1b[31m"), "tea��[31m"),
        (words.plain("Δ ± 0.5"), "Δ ± 0.5"),
        (words.short(COMMIT), "1c0a1c726cc5"),
        (words.short(f"{COMMIT}-dirty"), "1c0a1c726cc5-dirty"),
        (words.severity_range((1, 2, 3)), "1–3"),
        (words.severity_range((1, 5)), "1, 5"),
        (words.severity_range((5,)), "5"),
        (spread(SeedSummary(mean=83.337, sd=0.0512, n=5)), "83.34 ± 0.05"),
        (spread(None), "–"),
        (harmless("=1+1"), "'=1+1"),
        (harmless("tea"), "tea"),
        (harmless(5), 5),
        (export.formats("png, svg"), ["png", "svg"]),
        (export.file_name("cifar10-c, s5: wrn-28-10 ../../etc/passwd"), "cifar10-c-s5-wrn-28-10-etc-passwd"),
        (export.free("speed", {"speed"}), "speed-2"),
        (words.duration(42.0), "42 s"),
        (words.duration(4000.0), "1 h 7 min"),
        (words.duration(200_000.0), "55 h 33 min"),
        (runs._name(Path("/a/b/run/rows.jsonl"), 0), "run"),
        (runs._name(Path("/a/b/run/rows.jsonl"), 1), "b/run"),
        (runs._name(Path("/a/x.jsonl"), 0), "x"),
        (family("fog"), "weather"),
        (family("sketch"), "other"),
        (spoken("jpeg_compression"), "JPEG compression"),
        (spoken("sgld_rate"), "SGLD rate"),
        (spoken("fog"), "Fog"),
        (colour("tea (tuned)"), METHODS["tea"].look.colour),
        (colour("tea-after"), METHODS["tea"].look.colour),
        (colour("real"), REAL),
        (toml([True, 1, 0.001, 'a "b"', [1.0, math.inf]]), '[true, 1, 0.001, "a \\"b\\"", [1.0, inf]]'),
    ],
)
def test_what_is_written(written: Any, text: Any) -> None:
    assert written == text


def test_a_protocol_of_a_stranger_is_text() -> None:
    assert "{0} {x" in build([row("tea", "fog", 0.8, protocol="{0} {x")])[0].title
