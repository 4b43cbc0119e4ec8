"""What tests of the page share: rows of a real grid, and a real browser where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def stored() -> Path:
    """The stored rows of ten methods on fifteen corruptions."""
    return HOME / "results" / "cifar10-c-severity-5.jsonl"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; the tests that need one say why they did not run where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium), so nothing drives the page")
    playwright = pytest.importorskip("playwright.sync_api", reason="drives chromium: pip install playwright")
    with playwright.sync_playwright() as driver:
        # A container's root cannot have chromium's sandbox; the page under test is our own.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
