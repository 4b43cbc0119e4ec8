"""`steep train`: a source model from a recipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from steep.training import Plan, Progress, TrainingSpec


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(train)


def train(
    recipe: Annotated[str, typer.Argument(help="Such as train-digits (steep recipes lists them), or a .toml file.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The weights to write (default: weights/NAME.safetensors in the root).")
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data lives.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Such as cuda:1 (default: cuda where it is).")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Decides the weights to start from and every draw.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the recipe; repeatable.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--no-resume", help="Go on where a run of this recipe stopped, or refuse to.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
) -> None:
    """Train a source model. After Ctrl-C or a kill the same command goes on where the run was.

    Example: steep train train-digits --out digits.safetensors

    Example: steep train train-cifar10-wrn-28-10 --device cuda --set epochs=30
    """
    from rich.console import Console

    from steep.data import default_root
    from steep.recipes import assignment
    from steep.training import TrainingSpec, checkpoint_path, plan
    from steep.training import train as run

    overrides = dict(assignment(text) for text in sets or [])
    if seed is not None:
        overrides["seed"] = seed
    spec = TrainingSpec.from_recipe(recipe, overrides)
    target = out or (root or default_root()) / "weights" / f"{spec.recipe.removeprefix('train-')}.safetensors"
    if dry_run:
        _show(spec, plan(spec, root), target)
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    try:
        with _bar(console, spec) as progress:
            trained = run(spec, target, root=root, device=chosen(device), resume=resume, progress=progress)
    except KeyboardInterrupt:
        if checkpoint_path(target).exists():
            console.print(
                f"stopped; the run is kept in {checkpoint_path(target)}: the same command goes on", markup=False
            )
        raise
    row = trained.row
    said = "was there already" if trained.was_there else f"{row['epochs']} epochs in {_time(row['seconds'])}"
    console.print(f"{trained.weights}: {row['accuracy']:.2%} on {row['test_images']:,} pictures, {said}", markup=False)


def chosen(device: str | None) -> str:
    """Check a device before anything is loaded; None takes a GPU where there is one.

    >>> chosen("cpu")
    'cpu'
    """
    import torch

    from steep.errors import InputError

    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"--device: expected one that works here, such as cpu, got {device!r} ({why})") from error
    return device


@contextlib.contextmanager
def _bar(console: Console, spec: TrainingSpec) -> Iterator[Callable[[Progress], None]]:
    """Draw epochs, loss, accuracy and time left; without a terminal, one line for each test."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}", markup=False))
    last: list[float | None] = [None]
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(spec.recipe, total=None, said="loading")

        def report(now: Progress) -> None:
            said = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}  train {now.train_accuracy:.1%}"
            if now.test_accuracy is not None:
                said += f"  test {now.test_accuracy:.1%}"
            bars.update(task, completed=now.done, total=now.total, said=f"{said}  {_time(now.remaining)} left")
            if not console.is_terminal and now.test_accuracy != last[0]:
                last[0] = now.test_accuracy
                console.print(f"{said}  {_time(now.remaining)} left", markup=False, soft_wrap=True)

        yield report


def _show(spec: TrainingSpec, found: Plan, target: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from steep.training import checkpoint_path

    channels, height, width = found.image_shape
    table = Table(title=f"{spec.recipe}: {spec.about}", show_header=False)
    rows = {
        "data": f"{spec.data}{f' ({spec.domain})' if spec.domain else ''}: {found.data}",
        "pictures": f"{found.train_images:,} of {channels} × {height} × {width}, {found.classes} classes",
        "model": f"{spec.model}, {found.parameters / 1e6:.2f} M parameters, seed {spec.seed}",
        "steps": f"{spec.epochs} epochs × {found.steps} of {spec.batch_size} pictures = {found.total_steps:,}",
        "rate": f"{spec.lr:g} after {spec.warmup_epochs:g} epochs, then a cosine to 0; decay {spec.weight_decay:g}",
        "file": f"{target} (about {found.file_bytes / 1e6:.1f} MB, {spec.store})",
    }
    if checkpoint_path(target).exists():
        rows["stopped run"] = f"{checkpoint_path(target)}: the run goes on from it"
    for name, text in rows.items():
        table.add_row(name, text)
    console = Console(highlight=False)
    Console(width=None if console.is_terminal else 160, highlight=False, markup=False, emoji=False).print(table)


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"
