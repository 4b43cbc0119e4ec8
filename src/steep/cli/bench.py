"""`steep bench`: methods × shifts × severities × seeds → rows in a store, resumable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from steep.bench.engine import Outcome, Progress, Tick
    from steep.bench.recipe import Plan
    from steep.bench.spec import Cell
    from steep.bench.store import Store


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(bench)


def bench(
    recipe: Annotated[str, typer.Argument(help="Such as digits (steep recipes lists them), or a .toml file.")],
    store: Annotated[
        Path | None, typer.Option("--store", help="Where rows go: a .jsonl file or a folder (default: runs/RECIPE).")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="local, or ray for a cluster.")] = "local",
    address: Annotated[str, typer.Option("--address", help="Of Ray: auto, local, or ray://HOST:PORT.")] = "auto",
    cpus: Annotated[float, typer.Option("--cpus", min=0.0, help="Ray: cores a cell takes.")] = 1.0,
    gpus: Annotated[float, typer.Option("--gpus", min=0.0, help="Ray: GPUs a cell takes, such as 0.25.")] = 0.0,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="tea.lr=1e-4, or batch_size=64; repeatable.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME=VALUES", help="method=tea,tent or shift=fog; repeatable."),
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="0..4 or 0,3, for every method.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Such as cuda:1 (default: cuda where it is).")] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data lives.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many images of a set.")] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="A file of weights, or a folder that holds them by name.")
    ] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile models: pays for thousands of batches.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the grid and an estimate; run nothing.")] = False,
) -> None:
    """Run a grid and store a row for every cell. Stopped at any moment, the same command goes on from there.

    Example: steep bench digits --store runs/digits

    Example: steep bench appendix-cifar10 --only method=tea,tent --only shift=fog --seeds 0..4 --device cuda

    Example: steep bench table-1-cifar10 --set tea.lr=1e-4 --dry-run

    Example: steep bench continual --engine ray --address auto --gpus 0.5

    Example: torchrun --nproc_per_node=8 -m steep bench table-1-cifar10 (each batch shared by eight GPUs)
    """
    from rich.console import Console

    from steep.bench import local, ray, torchrun
    from steep.bench.recipe import plan
    from steep.bench.sources import Disk
    from steep.bench.store import Store
    from steep.cli.train import chosen
    from steep.errors import InputError, unknown

    if engine not in ("local", "ray"):
        raise unknown("engine", engine, ("local", "ray"))
    if engine == "ray" and device is not None:
        raise InputError(f"--device {device}: the ray engine takes none. Say how much of a GPU a cell takes: --gpus 1")
    if engine == "local" and gpus:
        raise InputError(f"--gpus {gpus:g}: is for --engine ray. On this machine: --device cuda")
    if compile and (engine == "ray" or torchrun.started()):
        raise InputError("--compile: is for one process on one device. Leave it out")
    if engine == "ray" and torchrun.started():
        raise InputError("--engine ray: torchrun has started several ranks already. Use one of the two")
    options = {"sets": sets or [], "only": only or [], "seeds": seeds, "limit": limit, "given": weights, "root": root}
    grid = plan(recipe, **options, require=not dry_run)  # type: ignore[arg-type]
    place = store or Path("runs") / grid.name
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)  # a path stays one word
    if dry_run:
        _show(grid, place, chosen(device))
        return
    disk = Disk(root, grid.found)
    with contextlib.ExitStack() as stack:
        group = None
        if torchrun.started():
            group, device = stack.enter_context(torchrun.joined(chosen(device)))
            if group.rank:
                torchrun.follow(grid.cells, group, sources=disk, device=device)
                return
        rows = stack.enter_context(Store(place))
        for note in rows.notes:
            console.print(f"{rows.path}: {note}", markup=False)
        try:
            with progress_line(console) as progress:
                if engine == "ray":
                    done = ray.run(
                        grid.cells, rows, sources=disk, address=address, cpus=cpus, gpus=gpus, progress=progress
                    )
                elif group is not None and device is not None:
                    done = torchrun.lead(grid.cells, rows, group, sources=disk, device=device, progress=progress)
                else:
                    done = local.run(
                        grid.cells, rows, sources=disk, device=chosen(device), progress=progress, compile=compile
                    )
        except KeyboardInterrupt:
            tell_stopped(console, grid, rows)
            raise
        _tell(console, done, rows.path)
    if done.failed:
        raise typer.Exit(1)


def _tell(console: Console, done: Outcome, path: Path) -> None:
    console.print(f"{path}: {done.ran} cells run, {done.found} there already, {len(done.failed)} failed", markup=False)
    tell_failures(console, done)
    console.print(f"to see them: steep report {path}", markup=False)


def tell_stopped(console: Console, grid: Plan, rows: Store) -> None:
    """Say after Ctrl-C what is kept."""
    kept = sum(cell.key() in rows for cell in grid.cells)
    said = f"stopped; {kept} of {len(grid.cells)} cells are in {rows.path}, the same command goes on from there"
    console.print(said, markup=False)


def tell_failures(console: Console, done: Outcome) -> None:
    """Name the cells that failed, a line for each reason."""
    reasons: dict[str, list[Cell]] = {}
    for cell, reason in done.failed:
        reasons.setdefault(reason, []).append(cell)
    for reason, cells in reasons.items():
        more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
        console.print(f"  {cells[0].name}{more}: {reason}", markup=False, style="red")


@contextlib.contextmanager
def progress_line(console: Console) -> Iterator[Progress]:
    """One line: cells done, the cell at work and its accuracy, time left. Without a terminal, a line per tenth."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")
        plain = _plainly(console)

        def report(tick: Tick) -> None:
            if console.is_terminal:
                bar.update(task, completed=tick.done + (tick.share if tick.share < 1 else 0), total=tick.total)
                bar.update(task, description=_words(tick))
            else:
                plain(tick)

        yield report


def _plainly(console: Console) -> Callable[[Tick], None]:
    told = -1

    def report(tick: Tick) -> None:
        nonlocal told
        tenth = 10 * tick.done // max(1, tick.total)
        if tick.accuracy is not None and tick.share >= 1 and tenth > told:
            told = tenth
            console.print(f"{tick.done}/{tick.total} cells; {_words(tick)}", markup=False)

    return report


def _words(tick: Tick) -> str:
    parts = []
    if tick.cell is not None:
        parts.append(tick.cell.name + (f" {tick.accuracy:.1%}" if tick.accuracy is not None else ""))
    elif tick.done < tick.total:
        parts.append("waiting for cells of another process" if tick.done else "")
    if tick.seconds_left is not None:
        parts.append(f"{duration(tick.seconds_left)} left")
    return " · ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """Write a time the way people say it.

    >>> duration(5), duration(185), duration(7400)
    ('5 s', '3 min', '2.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _show(grid: Plan, place: Path, device: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from steep.bench import estimate
    from steep.bench.rows import file_of

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    left = grid.left(place)
    first = grid.cells[0]
    table = Table("method", "setting", "seeds", "cells", "predicts", "images", "forward passes per image")
    for name, cells in _lines(grid.cells).items():
        seeds = ", ".join(map(str, sorted({cell.seed for cell in cells})))
        images = f"{sum(map(estimate.images, cells)):,}"
        passes = f"{estimate.passes(cells[0]):g}"
        table.add_row(name, cells[0].setting, seeds, str(len(cells)), cells[0].predict, images, passes)
    console.print(f"{grid.name}: {grid.about}", markup=False)
    shifts = list(dict.fromkeys(name for cell in grid.cells for name, _ in cell.shifts))
    severities = sorted({level for cell in grid.cells for _, level in cell.shifts})
    console.print(f"data {first.data}, model {first.model}, protocol {first.protocol}", markup=False)
    console.print(f"shifts {', '.join(shifts)}; severities {', '.join(map(str, severities))}", markup=False)
    for name, file in grid.files.items():
        said = file if file is not None and file.is_file() else f"not found; make them: steep train {grid.train[name]}"
        console.print(f"weights {name}: {said}", markup=False)
    console.print(table, markup=False, soft_wrap=False)
    took = estimate.seconds(left, device)
    console.print(
        f"{len(grid.cells)} cells, {len(grid.cells) - len(left)} of them in {file_of(place)} already; "
        f"about {duration(took)} on {device}, from one measured forward pass",
        markup=False,
    )


def _lines(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        name = (cell.label or cell.method) + (" (tuned)" if cell.setting == "tuned" else "")
        lines.setdefault(name, []).append(cell)
    return lines
