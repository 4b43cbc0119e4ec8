"""Ranks that adapt together, for real: run as a program, it forks them and each writes what it saw.

    python ranks.py FOLDER SCENARIO...

The ranks are forked, so that starting them costs no imports. `one(...)` gives what a single process does.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import steep
from nets import conv_net, images, net
from steep.core.dist.group import Group

torch.set_num_threads(1)

SIZE = 3  # ranks forked; the first two of them are also a group of their own
BATCHES = 6
EMPTY = 4  # the batch of which one rank has no image
HYPER = {
    "pl": {"lr": 1e-4, "threshold": 0.35},
    "shot": {"threshold": 0.5},
    "eta": {"margin_classes": None, "margin": 0.8, "novelty": 0.9},
    "eata": {"margin_classes": None, "margin": 0.8, "novelty": 0.9},
    "rdumb": {"margin_classes": None, "margin": 0.8, "novelty": 0.9, "lr": 0.01, "every": 4},
    "sar": {"margin_classes": None, "margin": 0.7},
    "deyo": {"margin": 0.8, "drop": 0.0, "lr": 1e-2},
    "roid": {"temperature": 1.0},
    "cmf": {"temperature": 1.0, "noise": 40.0},
    "cotta": {"copies": 2, "threshold": 1.0, "lr": 1e-4},
    "memo": {"copies": 2},
    "auto": {"lr": 1e-4},  # float32 alone: Adam makes much of a gradient that is nearly zero
    "rotta": {"memory": 8, "every": 10},
    "dua": {"images": 60, "copies": 8},
    "tea": {"sgld_steps": 2, "buffer_size": 64},
    "tea-fast": {"sgld_steps": 2, "chains": 7, "buffer_size": 64},
}
# compared in float64 too: that they agree is then no rounding
DIGITS = ("shot", "tent", "eata", "sar", "roid", "cotta", "rotta", "memo", "tea", "auto")


def batch(index: int, dtype: torch.dtype) -> Tensor:
    """The last one is so small that BatchNorm takes the source statistics to help."""
    x = images(13 if index == BATCHES - 1 else 24, seed=index)
    return (x * torch.linspace(0.1, 2, len(x)).roll(5 * index).view(-1, 1, 1, 1)).to(dtype)  # unlike each other


def split(x: Tensor, index: int, size: int) -> tuple[Tensor, ...]:
    """Uneven parts, others each time, and an empty one."""
    weights = [1 + (rank + index) % size for rank in range(size)]
    if index == EMPTY:
        weights[-1] = 0
    ends = [round(sum(weights[: k + 1]) / sum(weights) * len(x)) for k in range(size)]
    return x.split([b - a for a, b in zip([0, *ends], ends, strict=False)])


def adapter(method: str, dtype: torch.dtype = torch.float32, **options) -> steep.Adapter:
    source = [images(20, seed=99)] if method == "eata" else None
    options = {"guard": "skip", **options}
    return steep.adapt(net().to(dtype), method, source=source, **HYPER.get(method, {}), **options)


def facts(adapter: steep.Adapter) -> dict:
    return {"last": dataclasses.asdict(adapter.last), "state": flat(adapter.state_dict()["state"])}


def flat(tree, name: str = "") -> dict[str, Tensor]:
    """Every tensor of nested data, by its path."""
    if isinstance(tree, Tensor):
        return {name: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    return {path: t for key, value in items for path, t in flat(value, f"{name}/{key}").items()}


def one(method: str, dtype: torch.dtype) -> list[dict]:
    alone = adapter(method, dtype)
    return [{"logits": alone(batch(index, dtype)), **facts(alone)} for index in range(BATCHES)]


def equal(rank: int) -> dict:
    """Every method, by two ranks and by three."""
    results = {}
    pair = dist.new_group([0, 1])
    for size, group in ((2, pair), (3, True)):
        for method in steep.METHODS if rank < size else ():
            for dtype in (torch.float32, torch.float64) if method in DIGITS and size == 3 else (torch.float32,):
                ours = adapter(method, dtype, distributed=group)
                parts = [split(batch(index, dtype), index, size)[rank] for index in range(BATCHES)]
                results[method, size, dtype] = [{"logits": ours(x), **facts(ours)} for x in parts]
    return results


class Odd(nn.BatchNorm2d):
    """A normalisation that does something besides, and remembers no statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).sigmoid()


def variants(rank: int) -> dict:
    """Other nets and options: (name) → logits of this rank's parts, and how it all ended."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        nets = {"odd": conv_net(Odd).eval(), "group": net("group"), "layer": net("layer")}
        nets["wide"] = steep.models.build("wrn-10-1", 5)
    runs = {
        "no running statistics": ("odd", "tea", {"sgld_steps": 2, "buffer_size": 64}),
        "group norm": ("group", "tent", {}),
        "layer norm": ("layer", "sar", {}),
        "recompute": ("wide", "tent", {"recompute": True}),
        "two steps, episodic": ("wide", "shot", {"steps": 2, "episodic": True}),
        "statistics of the stream": ("wide", "alpha-bn", {"average": "stream"}),
        "recover": ("odd", "tea", {"sgld_steps": 2, "buffer_size": 64, "guard": "recover"}),
    }
    results = {}
    for name, (kind, method, options) in runs.items():
        seen = {}
        for how in (True, False) if rank == 0 else (True,):
            ours = steep.adapt(nets[kind].double(), method, distributed=how, **{"guard": "skip", **options})
            xs = [images(20, seed=s).double() for s in range(12 if name == "recover" else 3)]
            seen[how] = [ours(split(x, EMPTY - 1 + i % 2, SIZE)[rank] if how else x) for i, x in enumerate(xs)]
            seen[how, "state"] = flat(ours.state_dict())
        results[name] = seen
    return results


def faults(rank: int) -> dict:
    """What is wrong on one rank."""
    results = {}
    x = batch(0, torch.float32)
    mine = split(x, 0, SIZE)[rank].clone()
    spoilt = mine.clone()
    if rank == 1:
        spoilt[2, 0, 0, 0] = torch.nan
    ours = adapter("tent", distributed=True)
    results["refused"] = error_of(lambda: ours(spoilt))
    results["after a refusal"] = ours(mine), ours.last.used

    kept = adapter("tea", distributed=True, bad_images="nan")
    results["spoilt"] = kept(spoilt), kept.last.used, flat(kept.state_dict()["state"])
    results["all spoilt"] = kept(torch.full_like(mine, torch.nan)), kept.last.skipped
    results["one rank spoilt"] = kept(torch.full_like(mine, torch.nan) if rank == 1 else mine), kept.last.used
    results["empty everywhere"] = error_of(lambda: kept(mine[:0]))
    results["empty, of any shape"] = kept(torch.empty(0) if rank == 2 else mine).shape, kept.last.used
    results["other shapes"] = error_of(lambda: kept(images(4, size=8 + 4 * rank)))
    results["one has no images"] = error_of(lambda: kept([1, 2] if rank == 0 else mine))
    results["other weights"] = error_of(lambda: steep.adapt(net(seed=rank), "tent", distributed=True)(mine))
    results["other options"] = error_of(lambda: adapter("tent", seed=rank, distributed=True)(mine))
    results["still fine"] = kept(mine)

    # a model that answers NaN for one image of one rank: the step is undone on all of them
    marked = mine.clone()
    if rank == 2:
        marked[0, 0, 0, 0] = 9.0
    for method in ("tent", "dua"):  # dua has no loss by which the others would know
        fragile = steep.adapt(Fragile(), method, distributed=True, guard="skip")
        fragile(mine)
        before = flat(fragile.state_dict()["state"])
        fragile(marked)
        report = fragile.last
        results["undone", method] = report.skipped, report.undone, before, flat(fragile.state_dict()["state"])
    stern = steep.adapt(Fragile(), "tent", distributed=True, guard="raise")
    results["guard raises"] = error_of(lambda: stern(marked))
    results["graph"] = error_of(lambda: adapter("tent", graph=True, distributed=True))
    return results


class Fragile(nn.Module):
    """Knows one value of one pixel that it cannot stand."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> Tensor:
        return torch.where((x[:, 0, 0, 0] == 9.0)[:, None], torch.nan, self.net(x))


def resumed(rank: int, folder: Path) -> dict:
    """Save on every rank, go on from the file, with the same bits as without a stop."""
    results = {}
    for method in ("tea", "eta", "dua"):
        ours = adapter(method, distributed=True)
        for index in range(3):
            ours(split(batch(index, torch.float32), index, SIZE)[rank])
        path = folder / f"{method}-{rank}.safetensors"
        ours.save(path)
        again = steep.resume(path, net(), distributed=True)
        xs = [split(batch(index, torch.float32), index, SIZE)[rank] for index in (3, 4)]
        results[method] = [ours(x) for x in xs], [again(x) for x in xs]
        ours.reset()
        results[method, "reset"] = ours(split(batch(0, torch.float32), 0, SIZE)[rank]), facts(ours)
    if rank == 0:  # a state that the others do not have
        again.reset()
    results["only one was reset"] = error_of(lambda: again(xs[0]))
    return results


class Breaking(nn.Module):
    """Fails on one rank in the middle of a batch, after its first layer has spoken to the others."""

    armed = False  # of the class: the adapter works with a copy of the model

    def __init__(self, rank: int, how: str) -> None:
        super().__init__()
        self.net = net()
        self.breaks, self.how = rank == SIZE - 1, how

    def forward(self, x: Tensor) -> Tensor:
        features = self.net[:4](x)
        if self.breaks and Breaking.armed:
            if self.how == "dies":
                os._exit(9)
            if self.how == "raises":
                raise OSError("the disk is on fire")
            if not torch.is_grad_enabled():  # the step is done: the watch asks the source model
                raise torch.cuda.OutOfMemoryError("full")
        return self.net[4:](features)


def broken(rank: int, how: str) -> dict:
    Breaking.armed = False
    # far longer than the test may take: what ends it is not the clock
    guard = "recover" if how == "starves" else "skip"
    ours = steep.adapt(Breaking(rank, how), "tent", distributed=Group(timeout=600.0), guard=guard)
    for index in range(2):
        ours(split(batch(index, torch.float32), index, SIZE)[rank])
    Breaking.armed, started = True, time.monotonic()
    error = error_of(lambda: ours(split(batch(2, torch.float32), 2, SIZE)[rank]))
    return {"error": error, "seconds": time.monotonic() - started, "then": error_of(lambda: ours(images(4)))}


def late(rank: int) -> dict:
    """A rank that never comes: the clock ends the others."""
    ours = adapter("tent", distributed=Group(timeout=0.5))
    ours(split(batch(0, torch.float32), 0, SIZE)[rank])
    if rank == SIZE - 1:
        return {"error": None}
    return {"error": error_of(lambda: ours(images(4)))}


def error_of(work) -> tuple[str, str] | None:
    try:
        work()
    except Exception as error:
        return type(error).__name__, str(error)
    return None


def play(scenario: str, rank: int, folder: Path) -> dict:
    if scenario in ("dies", "raises", "starves"):
        return broken(rank, scenario)
    if scenario == "resumed":
        return resumed(rank, folder)
    return {"equal": equal, "variants": variants, "faults": faults, "late": late}[scenario](rank)


def main(folder: Path, scenarios: list[str]) -> int:
    adapter("tent", recompute=True)(images(4))  # what torch imports at its first step is then here before the fork
    children = []
    for rank in range(SIZE):
        child = os.fork()
        if child == 0:
            try:
                warnings.simplefilter("ignore")
                dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=SIZE)
                for scenario in scenarios:
                    torch.save(play(scenario, rank, folder), folder / f"{scenario}-{rank}.pt")
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)  # not through this process's exit handlers
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
