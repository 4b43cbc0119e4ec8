"""The tables of docs/ood.md and docs/models.md are those of the stored rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
sys.path.insert(0, str(HOME))

from benchmarks import normalisation, ood  # noqa: E402


@pytest.mark.parametrize(
    ("page", "table", "rows"),
    [("ood.md", ood.table, "ood-cpu.jsonl"), ("models.md", normalisation.table, "normalisation.jsonl")],
)
def test_a_page_shows_the_stored_rows(page, table, rows):
    assert table(HOME / "results" / rows) in (HOME / "docs" / page).read_text(encoding="utf-8")
