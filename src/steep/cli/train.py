"""`steep train`: a source model from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from steep.cli.options import Device, Root, choose_device
from steep.cli.output import console, print_table, text_bar
from steep.data import default_root
from steep.recipes import assignment
from steep.report.words import duration
from steep.training import Plan, Progress, TrainingSpec, checkpoint_path, plan
from steep.training import train as run


def train(
    recipe: Annotated[str, typer.Argument(help="Such as train-digits (steep recipes lists them), or a .toml file.")],
    out: Annotated[
        Path | None, typer.Option(help="The weights to write (default: weights/NAME.safetensors in the root).")
    ] = None,
    root: Root = None,
    device: Device = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of the recipe's: timm:NAME, hf:NAME, file.py:factory, …")
    ] = None,
    init: Annotated[str | None, typer.Option(help="Fine-tune: pretrained, or a file of weights to start from.")] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the weights to start from and every draw.")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the recipe; repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where a run of this recipe stopped, or refuse to.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done.")] = False,
) -> None:
    """Train a source model. After Ctrl-C or a kill the same command goes on where the run was.

    Example: steep train train-digits --out digits.safetensors

    Example: steep train train-cifar10-wrn-28-10 --device cuda --set epochs=30

    Example: steep train train-office-caltech-amazon-lite0 --model timm:resnet50 --init pretrained
    """
    overrides = dict(assignment(text) for text in sets or [])
    overrides |= {k: v for k, v in (("seed", seed), ("model", model), ("init", init)) if v is not None}
    spec = TrainingSpec.from_recipe(recipe, overrides)
    target = out or (root or default_root()) / "weights" / f"{spec.recipe.removeprefix('train-')}.safetensors"
    if dry_run:
        _show(spec, plan(spec, root), target)
        return
    screen = console()
    try:
        with text_bar(screen) as draw:
            trained = run(
                spec,
                target,
                root=root,
                device=choose_device(device),
                resume=resume,
                progress=lambda now: draw(_words(now), now.done, now.total, now.test_accuracy),
            )
    except KeyboardInterrupt:
        if checkpoint_path(target).exists():
            screen.print(f"stopped; the run is in {checkpoint_path(target)}: the same command goes on")
        raise
    row = trained.row
    how = "was there already" if trained.was_there else f"{row['epochs']} epochs in {duration(row['seconds'])}"
    screen.print(f"{trained.weights}: {row['accuracy']:.2%} on {row['test_images']:,} pictures, {how}")


def _words(now: Progress) -> str:
    test = "" if now.test_accuracy is None else f"  test {now.test_accuracy:.1%}"
    accuracies = f"train {now.train_accuracy:.1%}{test}"
    return f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}  {accuracies}  {duration(now.remaining)} left"


def _show(spec: TrainingSpec, work: Plan, target: Path) -> None:
    channels, height, width = work.image_shape
    table = Table(title=escape(f"{spec.recipe}: {spec.about}"), show_header=False)
    lines = {
        "data": f"{spec.data}{f' ({spec.domain})' if spec.domain else ''}: {work.data}",
        "pictures": f"{work.train_images:,} of {channels} × {height} × {width}, {work.classes} classes",
        "model": f"{spec.model}, {work.parameters / 1e6:.2f} M parameters, seed {spec.seed}",
        "steps": f"{spec.epochs} epochs × {work.steps} of {spec.batch_size} pictures = {work.total_steps:,}",
        "rate": f"{spec.lr:g} after {spec.warmup_epochs:g} epochs, then a cosine to 0; decay {spec.weight_decay:g}",
        "file": f"{target} (about {work.file_bytes / 1e6:.1f} MB, {spec.store})",
    }
    if checkpoint_path(target).exists():
        lines["stopped run"] = f"{checkpoint_path(target)}: the run goes on from it"
    for name, text in lines.items():
        table.add_row(name, escape(text))
    print_table(table)
