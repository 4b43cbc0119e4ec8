"""The speed benchmark with a GPU's defaults: `python -m benchmarks.gpu --out results/speed-h200.jsonl`."""

from __future__ import annotations

from benchmarks.speed import main

if __name__ == "__main__":
    main("cuda")
