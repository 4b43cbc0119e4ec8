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
from dataclasses import dataclass
from pathlib import Path

from steep.bench.recipe import plan

GN = "resnet-50-gn"
HALF = ("precision=bfloat16",)


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
        given = ["--root", str(root), "--device", device]
        match self.kind:
            case "train":
                shorter = ["--set", f"epochs={epochs}"] if epochs else []
                return ["train", self.recipe, *given, *shorter, "--resume"]
            case "corrupt":
                levels = [word for level in self.severities for word in ("--severity", str(level))]
                return ["corrupt", self.recipe, *given, "--out", out, *levels]
        words = [word for text in self.only for word in ("--only", text)]
        words += [word for text in self.sets for word in ("--set", text)]
        words += ["--limit", str(self.limit)] if self.limit else []
        words += ["--seeds", self.seeds] if self.seeds else []
        words += ["--compile"] if self.compile else []
        return ["bench", self.recipe, *given, *words, "--store", out]

    def left(self, root: Path, results: Path) -> str:
        """Say what there is to do: `done`, a number of cells, or that something is needed first."""
        out = self.result(root, results)
        if self.kind != "bench":
            return "done" if out.exists() else "to do"
        grid = plan(
            self.recipe, only=self.only, sets=self.sets, seeds=self.seeds, limit=self.limit, root=root, require=False
        )
        left = len(grid.left(out))
        lacking = [name for name, file in grid.files.items() if file is None or not file.is_file()]
        needs = f"; needs {', '.join(lacking)}" if left and lacking else ""
        return (f"{left} of {len(grid.cells)} cells" if left else "done") + needs


def but(*names: str) -> tuple[str, ...]:
    """Every method but these: `--only` has no other way to say it."""
    every = ("source", "bn", "dua", "pl", "shot", "tent", "eta", "eata", "sar", "tea-fast", "tea")
    return ("setting=paper", f"method={','.join(name for name in every if name not in names)}")


TEA = ("setting=paper", "method=tea")
JOBS = (
    Job("cifar10-c", "cifar10", "corrupt"),
    Job("cifar10-wrn-28-10", "train-cifar10-wrn-28-10", "train"),
    Job("cifar10-c-2000-h200", "table-1-cifar10", limit=2000, only=but("tea")),
    Job("cifar10-c-2000-h200", "table-1-cifar10", limit=2000, only=TEA, compile=True),
    Job("explain-cifar10-h200", "explain-cifar10", sets=("precision=tf32",)),
    Job("cifar100-c", "cifar100", "corrupt", severities=(5,)),
    Job("cifar100-wrn-28-10", "train-cifar100-wrn-28-10", "train"),
    Job("cifar100-c-severity-5-h200", "appendix-cifar100", seeds="0", only=but("tea")),
    Job("cifar100-c-severity-5-h200", "appendix-cifar100", seeds="0", only=TEA, compile=True),
    Job("clean-h200", "clean-cifar10"),
    Job("clean-h200", "clean-cifar100"),
    Job("cifar10-c-tf32-2000-h200", "appendix-cifar10", limit=2000, seeds="0", only=TEA, sets=("precision=tf32",)),
    Job("cifar10-c-seeds-2000-h200", "appendix-cifar10", limit=2000, only=("method=tea,tea-fast",), compile=True),
    Job("before-after-2000-h200", "before-after", limit=2000, only=("method=tent,tea",)),
    *(
        Job(f"pacs-{d}", f"train-pacs-{d}-resnet-18-bn", "train")
        for d in ("photo", "art_painting", "cartoon", "sketch")
    ),
    Job("pacs-32-h200", "table-3-pacs"),
    Job("explain-pacs-h200", "explain-pacs"),
    Job("cifar10-gn", f"train-cifar10-{GN}", "train"),
    Job("cifar10-c-gn-2000-h200", "table-2-cifar10", limit=2000),
    Job("continual-2000-h200", "continual", limit=2000),
    Job("mixed-2000-h200", "mixed", limit=2000),
    Job("label-shift-2000-h200", "label-shift", limit=2000),
    Job("cifar10-c-severity-5", "appendix-cifar10", only=TEA, compile=True),
    Job("cifar10-c-tuned-h200", "appendix-cifar10", seeds="0", only=("setting=tuned",)),
    Job("cifar100-gn", f"train-cifar100-{GN}", "train"),
    Job("cifar100-c-gn-2000-h200", "table-2-cifar100", limit=2000),
    Job("tiny-imagenet-c", "tiny-imagenet", "corrupt", severities=(5,)),
    Job("tiny-wrn-28-10", "train-tiny-imagenet-wrn-28-10", "train"),
    Job("tiny-imagenet-c-severity-5-h200", "appendix-tiny-imagenet", seeds="0"),
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
    told = parser.parse_args()
    until = None if told.minutes is None else time.monotonic() + 60 * told.minutes
    failed = []
    for job in JOBS:
        if told.only and not job.name.startswith(tuple(told.only)):
            continue
        left = job.left(told.root, told.results)
        print(f"{job.kind:7} {job.recipe:32} → {job.result(told.root, told.results)}: {left}", flush=True)
        if told.list or left == "done":
            continue
        rest = None if until is None else until - time.monotonic()
        if rest is not None and rest <= 0:
            print("out of time: the same command goes on from here")
            break
        command = [sys.executable, "-m", "steep", *job.command(told.root, told.results, told.device, told.epochs)]
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
