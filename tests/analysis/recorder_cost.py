"""What a Recorder costs: python tests/analysis/recorder_cost.py [device] [model] [batches] > rows.jsonl

A stream of random images under tent, the time of the Recorder's part taken by itself, its flushes included.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import torch

import steep
from steep import provenance
from steep.analysis.stream import Recorder


def main(device: str = "cpu", model: str = "wrn-40-2", count: str = "20") -> None:
    adapter = steep.adapt(steep.models.build(model, 10).eval().to(device), "tent")
    batches = [torch.rand(100, 3, 32, 32, device=device) for _ in range(int(count))]
    spent = 0.0
    with Recorder(Path(tempfile.mkdtemp()) / "run.jsonl") as record:

        def timed(adapter: steep.Adapter, logits: torch.Tensor) -> None:
            nonlocal spent
            begun = time.perf_counter()
            record(adapter, logits)
            spent += time.perf_counter() - begun

        adapter.callbacks.append(timed)
        adapter(batches[0])  # what only the first batch costs
        spent, begun = 0.0, time.perf_counter()
        for x in batches:
            adapter(x)
        if adapter.device.type == "cuda":
            torch.cuda.synchronize(adapter.device)
        whole = time.perf_counter() - begun
    numbers = {"stream_s": round(whole, 4), "recorder_s": round(spent, 6), "batches": len(batches), "batch_size": 100}
    about = {"device": provenance.device_name(torch.device(device)), "commit": provenance.commit()}
    print(json.dumps({"what": "recorder", "model": model, "method": "tent", **numbers, **about}))


if __name__ == "__main__":
    main(*sys.argv[1:])
