"""The benchmark of class order changes the order of the images, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks.class_order import main
from steep.models import build, checkpoints


def test_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    checkpoints.save(build("wrn-10-1", 10, in_channels=1), tmp_path / "w.safetensors")
    command = [
        "--data",
        "digits",
        "--size",
        "8",
        "--model",
        "wrn-10-1",
        "--batch",
        "100",
        "--methods",
        "source",
        "bn",
        "tent",
    ]
    command += ["--weights", str(tmp_path / "w.safetensors"), "--out", str(tmp_path / "rows.jsonl")]
    monkeypatch.setattr(sys, "argv", ["class_order", *command])
    main()
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    by_order = {(row["method"], row["order"]): row for row in rows}
    assert len(by_order) == 6
    assert (
        by_order["source", "mixed"]["accuracy"] == by_order["source", "by-class"]["accuracy"]
    )  # it sees one image at a time
    assert by_order["bn", "mixed"]["accuracy"] != by_order["bn", "by-class"]["accuracy"]
    assert by_order["bn", "mixed"]["classes_a_batch"] == 10
    assert by_order["bn", "by-class"]["classes_a_batch"] < 4
    assert (by_order["tent", "mixed"]["lr"], "lr" in by_order["bn", "mixed"]) == (1e-4, False)
