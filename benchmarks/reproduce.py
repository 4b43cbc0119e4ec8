"""The paper again, on one GPU: every training, set and grid of results/ in order, each where the last run stopped.

    python -m benchmarks.reproduce --root DATA --device cuda --list          # what there is to do, and what is done
    python -m benchmarks.reproduce --root DATA --device cuda --minutes 25    # go on for so long
    python -m benchmarks.reproduce --root DATA --only cifar100 pacs-32       # these alone

DATA holds the clean sets (docs/data.md). Weights go to DATA/weights, corrupted sets beside the clean ones, rows to
results/. A job is a `steep` command as one would type it; a grid whose rows are all there costs nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from steep.bench.recipe import plan
from steep.bench.rows import read
from steep.bench.spec import Cell

GN = "resnet-50-gn"
HALF = ("precision=bfloat16",)
UNUSED = "not needed: every grid that uses it is done"


@dataclass(frozen=True)
class Job:
    """A `steep` command, by the name of what it leaves: a file of weights, a folder of pictures or a file of rows."""

    name: str
    recipe: str  # or the clean set, of corrupt
    kind: str = "bench"  # train | corrupt | bench
    limit: int | None = None  # images of each set
    seeds: str | None = None
    only: tuple[str, ...] = ("setting=paper",)
    sets: tuple[str, ...] = HALF
    compile: bool = False  # pays for the paper's TEA on many sets
    severities: tuple[int, ...] = ()  # of corrupt

    def result(self, root: Path, results: Path) -> Path:
        """Where it leaves what it makes."""
        if self.kind == "train":
            return root / "weights" / f"{self.recipe.removeprefix('train-')}.safetensors"
        return root / self.name if self.kind == "corrupt" else results / f"{self.name}.jsonl"

    def command(self, root: Path, results: Path, device: str, epochs: int | None = None) -> list[str]:
        """Give the command as one would type it, without `steep`."""
        out = str(self.result(root, results))
        where = ["--root", str(root), "--device", device]
        match self.kind:
            case "train":
                shorter = ["--set", f"epochs={epochs}"] if epochs else []
                return ["train", self.recipe, *where, *shorter, "--resume"]
            case "corrupt":
                levels = [word for level in self.severities for word in ("--severity", str(level))]
                return ["corrupt", self.recipe, *where, "--out", out, *levels]
        words = [word for text in self.only for word in ("--only", text)]
        words += [word for text in self.sets for word in ("--set", text)]
        words += ["--limit", str(self.limit)] if self.limit else []
        words += ["--seeds", self.seeds] if self.seeds else []
        words += ["--compile"] if self.compile else []
        return ["bench", self.recipe, *where, *words, "--store", out]

    def cells(self, root: Path, results: Path) -> tuple[list[Cell], int]:
        """Give the cells of a grid that have no row yet, and how many there are in all."""
        grid = plan(
            self.recipe, only=self.only, sets=self.sets, seeds=self.seeds, limit=self.limit, root=root, require=False
        )
        out = self.result(root, results)
        cells = grid.left(out)
        if cells and out.exists():  # rows of any weights will do: those of a file may be gone, or trained again
            known = {Cell.from_json({**row["spec"], "weights_sha256": ""}).key() for row in read(out)}
            cells = [cell for cell in cells if replace(cell, weights_sha256="").key() not in known]
        return cells, len(grid.cells)

    def left(self, root: Path, results: Path, waiting: Collection[Cell] = ()) -> str:
        """Say what there is to do: `done`, a number of cells and the weights they lack, or whether it is needed.

        `waiting` are the cells of all grids that have no row yet: weights and sets that none of them uses are not made.
        """
        if self.kind == "bench":
            cells, every = self.cells(root, results)
            lacking = sorted({cell.weights for cell in cells if not cell.weights_sha256})
            needs = f"; needs {', '.join(lacking)}" if lacking else ""
            return (f"{len(cells)} of {every} cells" if cells else "done") + needs
        out = self.result(root, results)
        if out.exists():
            return "done"
        made, used = (out.stem, "weights") if self.kind == "train" else (self.name, "data")
        return "to do" if any(getattr(cell, used) == made for cell in waiting) else UNUSED


EXPLAINED = "method=shot-history,sar-history,sar-history-two,pl-1e-6,pl-2e-6,pl-3e-6,pl-5e-6"
OF_GN = "method=tea-fast-lower,tea-fast-lower-5e-5,tea-fast-5e-5,tea-fast-all,tea-all,tea-published,tea-fast-1e-5"
TEA = ("setting=paper", "method=tea")
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
VARIED = "method=rate-0.001,rate-0.01,rate-0.4,sgld-steps-1,sgld-steps-5,sgld-steps-50,sgld-steps-200"
# Compiling takes half a minute and gains a sixth: it pays from some hundred thousand images on.
JOBS = (
    Job("cifar10-c", "cifar10", "corrupt"),
    Job("cifar10-wrn-28-10", "train-cifar10-wrn-28-10", "train"),
    Job("cifar10-c-2000-h200", "table-1-cifar10", limit=2000, only=("setting=paper",)),
    Job("cifar10-c-tf32-2000-h200", "appendix-cifar10", limit=2000, seeds="0", only=TEA, sets=("precision=tf32",)),
    Job("cifar100-c", "cifar100", "corrupt"),
    Job("cifar100-wrn-28-10", "train-cifar100-wrn-28-10", "train"),
    Job("cifar100-c-mirrored-h200", "appendix-cifar100", seeds="0"),
    Job("clean-h200", "clean-cifar10", seeds="0"),
    Job("clean-cifar100-mirrored-h200", "clean-cifar100", seeds="0"),
    Job("cifar100-c-mirrored-2000-h200", "table-1-cifar100", limit=2000, only=("setting=paper", "severity=1,2,3,4,5")),
    Job(
        "cifar100-c-mirrored-seeds-2000-h200",
        "appendix-cifar100",
        limit=2000,
        seeds="1..4",
        only=("method=tea,tea-fast",),
    ),
    Job("before-after-2000-h200", "experiments/before-after.toml", limit=2000, only=("method=tent-after,tea-before",)),
    Job("continual-1000-h200", "continual", limit=1000),
    Job("mixed-1000-h200", "mixed", limit=1000),
    Job("label-shift-1000-h200", "label-shift", limit=1000),
    *(Job(f"pacs-{d}", f"train-pacs-{d}-resnet-18-bn", "train") for d in DOMAINS),
    Job("pacs-32-h200", "table-3-pacs"),
    Job("pacs-32-continual-h200", "table-3-pacs", sets=(*HALF, "protocol=continual")),
    Job("explain-pacs-h200", "experiments/explain-pacs.toml", only=("method=tea-history",)),
    Job("cifar10-gn", f"train-cifar10-{GN}", "train"),
    Job("cifar10-c-gn-1000-h200", "table-2-cifar10", limit=1000),
    Job("explain-gn-h200", "experiments/explain-gn.toml", limit=1000, only=(OF_GN,)),
    Job("explain-cifar10-h200", "experiments/explain-cifar10.toml", sets=("precision=tf32",), only=(EXPLAINED,)),
    Job("cifar10-c-seeds-2000-h200", "appendix-cifar10", limit=2000, seeds="1..4", only=("method=tea,tea-fast",)),
    Job("sensitivity-2000-h200", "analyze-sensitivity", limit=2000, only=(VARIED,)),
    Job("tiny-imagenet-c", "tiny-imagenet", "corrupt", severities=(5,)),
    Job("tiny-wrn-28-10", "train-tiny-imagenet-wrn-28-10", "train"),
    Job("tiny-imagenet-c-2000-h200", "appendix-tiny-imagenet", seeds="0", limit=2000),
    *(Job(f"pacs-128-{d}", f"train-pacs-128-{d}-resnet-18-bn", "train") for d in DOMAINS),
    Job("pacs-128-h200", "pacs-128"),
    Job("cifar10-c-tuned-2000-h200", "appendix-cifar10", seeds="0", limit=2000, only=("setting=tuned",)),
    Job("cifar100-gn", f"train-cifar100-{GN}", "train"),
    Job("cifar100-c-gn-1000-h200", "table-2-cifar100", limit=1000, only=("setting=paper", "severity=5")),
    Job("clean-h200", "clean-tiny-imagenet", seeds="0"),
    Job("tiny-gn", f"train-tiny-imagenet-{GN}", "train"),
    Job("tiny-imagenet-c-gn-2000-h200", "table-2-tiny-imagenet", limit=2000, only=("setting=paper", "severity=5")),
    Job("cifar10-c-severity-5", "appendix-cifar10", only=TEA, compile=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where data lives")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", default=[], help="jobs whose names begin so")
    parser.add_argument("--minutes", type=float, help="stop then; the same command goes on from there")
    parser.add_argument("--epochs", type=int, help="of every training, instead of the recipe's own")
    parser.add_argument("--list", action="store_true", help="say what there is to do, and do nothing")
    args = parser.parse_args()
    until = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    failed = []
    grids = (job.cells(args.root, args.results)[0] for job in JOBS if job.kind == "bench")
    waiting = [cell for cells in grids for cell in cells]  # as things stood at the start
    for job in JOBS:
        if args.only and not job.name.startswith(tuple(args.only)):
            continue
        left = job.left(args.root, args.results, waiting)
        print(f"{job.kind:7} {job.recipe:32} → {job.result(args.root, args.results)}: {left}", flush=True)
        if args.list or left in ("done", UNUSED):
            continue
        rest = None if until is None else until - time.monotonic()
        if rest is not None and rest <= 0:
            print("out of time: the same command goes on from here")
            break
        command = [sys.executable, "-m", "steep", *job.command(args.root, args.results, args.device, args.epochs)]
        try:
            code = subprocess.run(command, timeout=rest, check=False).returncode
        except subprocess.TimeoutExpired:
            print("out of time: the same command goes on from here")
            break
        if code:
            failed.append(job.name)  # the next job may not need it
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
