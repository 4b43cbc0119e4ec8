"""How the cost of TEA grows with batch, steps, chains, image size and model size: one knob at a time.

    python -m benchmarks.growth --out results/growth-cpu.jsonl --figure docs/images/growth.png
    python -m benchmarks.growth --device cuda --out results/growth-h200.jsonl

Beside each measured time stands what the counted passes through the model would give, scaled to the base.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import steep
from benchmarks.rows import append
from benchmarks.speed import forward_flops, passes, timed
from steep import provenance
from steep.report.charts import theme
from steep.report.export import render
from tools.results_page.plates import small

BASES: dict[str, dict[str, Any]] = {
    "cpu": {"batch": 32, "steps": 4, "chains": 32, "size": 32, "model": "wrn-16-1"},
    "cuda": {"batch": 200, "steps": 20, "chains": 200, "size": 32, "model": "wrn-28-10"},
}
VARIED: dict[str, dict[str, list[Any]]] = {
    "cpu": {
        "batch": [16, 32, 64, 128],
        "steps": [1, 2, 4, 8, 16],
        "chains": [8, 16, 32, 64, 128],
        "size": [16, 32, 48, 64],
        "model": ["wrn-10-1", "wrn-16-1", "wrn-16-2", "wrn-28-2", "wrn-16-4"],
    },
    "cuda": {
        "batch": [50, 100, 200, 400, 1000],
        "steps": [1, 3, 10, 20, 50],
        "chains": [25, 50, 100, 200, 400],
        "size": [32, 64, 96, 128],
        "model": ["wrn-16-2", "wrn-40-2", "wrn-16-10", "wrn-28-10"],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=BASES)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--figure", type=Path, help="draw the rows of --out instead of measuring")
    args = parser.parse_args()
    if args.figure:
        draw([json.loads(line) for line in args.out.read_text(encoding="utf-8").splitlines()], args.figure)
        return
    base = BASES[args.device]
    for knob, values in VARIED[args.device].items():
        for value in values:
            row = measured({**base, knob: value}, torch.device(args.device), args.seconds)
            print(f"{knob:6} {value!s:>9} {row['ms']:9.1f} ms", flush=True)
            append(args.out, {"knob": knob, "value": value, "base": base, **row})


def measured(at: dict[str, Any], where: torch.device, least: float) -> dict[str, Any]:
    """Time one setting and count its work."""
    hyper = {"sgld_steps": at["steps"], "chains": at["chains"]}
    x = torch.rand(at["batch"], 3, at["size"], at["size"], device=where)
    gpu = where.type == "cuda"

    def make() -> steep.Adapter:
        model = steep.models.build(at["model"], 10).to(where)
        return steep.adapt(model, "tea", precision="auto", graph=gpu, inplace=True, buffer_size=1000, **hyper)

    seconds = timed(make, x, least, warm=5 if gpu else 1)
    return {
        "benchmark": "growth",
        "ms": round(seconds["each"] * 1e3, 3),
        "batches": int(seconds["batches"]),
        "gflop": round(forward_flops(at["model"], at["size"]) * passes("tea", hyper, at["batch"]) / 1e9, 3),
        **provenance.stamp(where),
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """One panel a knob: measured points, and the counted work as a line through the base."""
    import altair as alt

    panels = []
    for knob, title in {
        "batch": "test images in a batch", "steps": "Langevin steps", "chains": "chains", "size": "side of the images",
        "model": "model: GFLOP for one image",
    }.items():  # fmt: skip
        of_knob = [row for row in rows if row["knob"] == knob]
        anchor = next(row for row in of_knob if row["value"] == row["base"][knob])
        points = []
        for row in of_knob:
            side = row["base"]["size"]
            x = forward_flops(row["value"], side) / 1e9 if knob == "model" else row["value"]
            counted = anchor["ms"] * row["gflop"] / anchor["gflop"]
            points.append({"x": x, "ms": row["ms"], "counted": counted, "name": str(row["value"])})
        axis = alt.X(
            "x:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=12), axis=alt.Axis(tickCount=4)
        )
        data = alt.Data(values=points)
        log = alt.Scale(type="log", nice=False, padding=12)
        measured = (
            alt.Chart(data)
            .mark_circle(size=70, color="#0f766e")
            .encode(axis, alt.Y("ms:Q", title="ms a batch", scale=log, axis=alt.Axis(tickCount=5)))
        )
        line = alt.Chart(data).mark_line(strokeDash=[4, 3], color="#64748b").encode(axis, alt.Y("counted:Q", scale=log))
        panel = line + measured
        if knob == "model":
            panel += alt.Chart(data).mark_text(dx=8, dy=8, align="left").encode(axis, alt.Y("ms:Q"), text="name:N")
        panels.append(panel.properties(width=300 if knob == "model" else 130, height=150))
    title = ["Time of a batch (points), and the work", "counted, scaled to the base (dashes)"]
    chart = alt.vconcat(alt.concat(*panels[:-1], columns=2), panels[-1], title=title).configure(**theme())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(small(render("png")(chart.to_dict())))


if __name__ == "__main__":
    main()
