"""What all tests share."""

import pytest
import torch

import steep

torch.set_num_threads(1)  # the suite runs as two processes, and small tensors gain nothing from more


@pytest.fixture(autouse=True)
def methods_as_published(monkeypatch):
    """Let methods alone, as guard="skip" does: tests of the default, "recover", ask for it by its name."""
    monkeypatch.setitem(steep.adapt.__kwdefaults__, "guard", "skip")
