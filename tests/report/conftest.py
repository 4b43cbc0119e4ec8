"""What tests of the page share: rows of a real grid."""

from __future__ import annotations

from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stored() -> Path:
    """The stored rows of ten methods on fifteen corruptions."""
    return HOME / "results" / "cifar10-c-severity-5.jsonl"
