"""`steep bench`: methods × shifts × severities × seeds → rows in a store, resumable."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from steep.bench import estimate, local, ray, torchrun
from steep.bench.recipe import Plan, plan
from steep.bench.rows import file_of, grouped
from steep.bench.spec import label_of
from steep.bench.store import Store
from steep.cli.options import Device, Limit, Only, Root, Seeds, Weights, choose_device
from steep.cli.output import console, print_failures, running
from steep.errors import InputError, check_known
from steep.models.loading import is_outside
from steep.report.words import duration


def bench(
    recipe: Annotated[str, typer.Argument(help="Such as digits (steep recipes lists them), or a .toml file.")],
    store: Annotated[
        Path | None, typer.Option(help="Where rows go: a .jsonl file or a folder (default: runs/RECIPE).")
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    address: Annotated[str, typer.Option(help="Of Ray: auto, local, or ray://HOST:PORT.")] = "auto",
    cpus: Annotated[float, typer.Option(min=0.0, help="Ray: cores a cell takes.")] = 1.0,
    gpus: Annotated[float, typer.Option(min=0.0, help="Ray: GPUs a cell takes, such as 0.25.")] = 0.0,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="tea.lr=1e-4, or batch_size=64; repeatable.")
    ] = None,
    only: Only = None,
    seeds: Seeds = None,
    device: Device = None,
    root: Root = None,
    limit: Limit = None,
    weights: Weights = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of the recipe's: timm:NAME, hf:NAME, file.py:factory, …")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile models: pays for thousands of batches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the grid and an estimate; run nothing.")] = False,
) -> None:
    """Run a grid and store a row for every cell. Stopped at any moment, the same command goes on from there.

    Example: steep bench digits --store runs/digits

    Example: steep bench appendix-cifar10 --only method=tea,tent --only shift=fog --seeds 0..4 --device cuda

    Example: steep bench table-1-cifar10 --set tea.lr=1e-4 --dry-run

    Example: steep bench continual --engine ray --address auto --gpus 0.5

    Example: steep bench imagenet-c-resnet50 --model timm:convnext_tiny --root DATA

    Example: torchrun --nproc_per_node=8 -m steep bench table-1-cifar10 (each batch shared by eight GPUs)
    """
    _check(engine, device, gpus, compile, torchrun.started())
    wanted: dict[str, Any] = {"seeds": seeds, "limit": limit, "model": model, "weights": weights, "root": root}
    grid = plan(recipe, sets=sets or [], only=only or [], require=not dry_run, **wanted)
    place = store or Path("runs") / grid.name
    if dry_run:
        _show(grid, place, choose_device(device))
        return
    screen, disk = console(), grid.sources(root)
    with contextlib.ExitStack() as stack:
        group = None
        if torchrun.started():
            group, device = stack.enter_context(torchrun.joined(choose_device(device)))
            if group.rank:
                torchrun.follow(grid.cells, group, sources=disk, device=device)
                return
        rows = stack.enter_context(Store(place))
        with running(screen, grid, rows) as progress:
            if engine == "ray":
                done = ray.run(grid.cells, rows, sources=disk, address=address, cpus=cpus, gpus=gpus, progress=progress)
            elif group is not None and device is not None:
                done = torchrun.lead(grid.cells, rows, group, sources=disk, device=device, progress=progress)
            else:
                where = choose_device(device)
                done = local.run(grid.cells, rows, sources=disk, device=where, progress=progress, compile=compile)
    counts = f"{done.ran} cells run, {done.stored} there already, {len(done.failed)} failed"
    screen.print(f"{rows.path}: {counts}")
    print_failures(screen, done)
    screen.print(f"to see them: steep report {rows.path}")
    if done.failed:
        raise typer.Exit(1)


def _check(engine: str, device: str | None, gpus: float, compile: bool, ranks: bool) -> None:
    """Refuse options that do not go together."""
    check_known("engine", ("local", "ray"), engine)
    if engine == "ray" and device is not None:
        raise InputError(f"--device {device}: the ray engine takes none. Say how much of a GPU a cell takes: --gpus 1")
    if engine == "local" and gpus:
        raise InputError(f"--gpus {gpus:g}: is for --engine ray. On this machine: --device cuda")
    if compile and (engine == "ray" or ranks):
        raise InputError("--compile: is for one process on one device. Leave it out")
    if engine == "ray" and ranks:
        raise InputError("--engine ray: torchrun has started several ranks already. Use one of the two")


def _show(grid: Plan, place: Path, device: str) -> None:
    """Print the grid, and how long the rest of it would take."""
    screen = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    left, first = grid.left(place), grid.cells[0]
    shifts = list(dict.fromkeys(name for cell in grid.cells for name, _ in cell.shifts))
    severities = sorted({level for cell in grid.cells for _, level in cell.shifts})
    screen.print(f"{grid.name}: {grid.about}")
    screen.print(f"data {first.data}, model {first.model}, protocol {first.protocol}")
    screen.print(f"shifts {', '.join(shifts)}; severities {', '.join(map(str, severities))}")
    for name, file in grid.files.items():
        screen.print(f"weights {name}: {file if file else f'not found; make them: steep train {grid.train[name]}'}")
    table = Table("method", "setting", "seeds", "cells", "predicts", "images", "forward passes per image")
    for name, cells in grouped(grid.cells, lambda cell: label_of(vars(cell))).items():
        seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
        images = f"{sum(map(estimate.images, cells)):,}"
        passes = f"{estimate.passes(cells[0]):g}"
        table.add_row(name, cells[0].setting, seeds, str(len(cells)), cells[0].predict, images, passes)
    screen.print(table, soft_wrap=False)
    there = f"{len(grid.cells)} cells, {len(grid.cells) - len(left)} of them in {file_of(place)} already"
    if is_outside(first.model):
        screen.print(f"{there}; no estimate of the time for {first.model}, which is not one of steep's own")
    else:
        seconds = estimate.seconds(left, device)
        screen.print(f"{there}; about {duration(seconds)} on {device}, from measured forward passes")
