"""What all tests share."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import steep

torch.set_num_threads(1)  # the suite runs as two processes, and small tensors gain nothing from more


@pytest.fixture(autouse=True)
def methods_as_published(monkeypatch):
    """Let methods alone, as guard="skip" does: tests of the default, "recover", ask for it by its name."""
    monkeypatch.setitem(steep.adapt.__kwdefaults__, "guard", "skip")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A headless Chromium; the tests that need one say why they did not run where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium), so nothing drives the pages")
    playwright = pytest.importorskip("playwright.sync_api", reason="drives chromium: pip install playwright")
    with playwright.sync_playwright() as driver:
        # A container's root cannot have chromium's sandbox; the page under test is our own.
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
