"""The tables of docs/ood.md and docs/models.md are those of the stored rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
sys.path.insert(0, str(HOME))

from benchmarks import architectures, normalisation, ood  # noqa: E402


@pytest.mark.parametrize(
    ("page", "table", "rows"),
    [
        ("ood.md", ood.table, "ood-cpu.jsonl"),
        ("models.md", normalisation.table, "normalisation.jsonl"),
        ("models.md", architectures.table, "architectures-h200.jsonl"),
    ],
)
def test_a_page_shows_the_stored_rows(page, table, rows):
    assert table(HOME / "results" / rows) in (HOME / "docs" / page).read_text(encoding="utf-8")


def test_the_architectures_show_what_was_found_and_what_was_not(tmp_path):
    rows = [
        {"architecture": "a", "method": "tea", "norm_layers": ["N"], "norm_parameters": 4, "moved": 3, "finite": True}
        | {"energy_fell": False},
        {"architecture": "a", "method": "tent", "norm_layers": ["N"], "norm_parameters": 4, "moved": 4, "finite": False}
        | {"energy_fell": True},
        {"architecture": "b", "method": "tea", "norm_layers": [], "norm_parameters": 0, "refused": "no norm layer"},
        {"architecture": "b", "method": "tent", "norm_layers": [], "norm_parameters": 0, "error": "RuntimeError"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert architectures.table(tmp_path / "rows.jsonl").splitlines()[2:] == [
        "| `a` | N | 3 of 4 | 4 of 4 | **no** | no |",
        "| `b` | none | refused | **failed** | – | – |",
    ]
