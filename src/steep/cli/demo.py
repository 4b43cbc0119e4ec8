"""`steep demo`: the whole story in about two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the rows and the page go.")] = Path("runs/demo"),
    root: Annotated[Path | None, typer.Option("--root", help="Where data lives.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use the bundled digits; fetch nothing.")] = False,
    device: Annotated[str | None, typer.Option("--device", help="Such as cuda (default: cuda where it is).")] = None,
) -> None:
    """Adapt a small model to corrupted pictures with all ten methods, and compare.

    The first run fetches CIFAR-10 once; with no network it takes scikit-learn's digits instead. A second run only
    prints what is stored already: delete the folder to measure again.

    Example: steep demo

    Example: steep demo --offline --out runs/digits-demo
    """
    from rich.console import Console

    from steep.bench.rows import read
    from steep.files import writing
    from steep.report.formats import terminal
    from steep.report.page import html
    from steep.report.tables import build

    console = Console(stderr=True, highlight=False)
    on_digits = offline or not _cifar10(console, root)
    if on_digits:
        console.print("no CIFAR-10 here: running on scikit-learn's bundled digits instead")
    store = out / ("digits" if on_digits else "cifar10")
    _measure(console, "digits" if on_digits else "demo", store, root, device)
    tables = build(read(store))
    typer.echo(terminal(tables), nl=False)
    page = store / "report.html"
    with writing(page) as file:
        file.write(html(tables, "steep demo").encode())
    typer.echo(f"\nthe same as a page: {page}\nthe rows: {store / 'rows.jsonl'}")


def _cifar10(console: Console, root: Path | None) -> bool:
    """Have the test images here, from the first source that answers; say why not in one line."""
    from steep.cli.progress import bar
    from steep.data import default_root, fetch, load
    from steep.errors import DataError

    try:
        load("cifar10", root=root, limit=1)
    except DataError:
        try:
            console.print("fetching CIFAR-10, once")
            with bar(console) as progress:
                fetch("cifar10", root or default_root(), progress)
        except DataError as error:
            console.print(f"CIFAR-10 cannot be fetched: {error}", markup=False, style="yellow")
            return False
    return True


def _measure(console: Console, recipe: str, store: Path, root: Path | None, device: str | None) -> None:
    from steep.bench import local
    from steep.bench.recipe import plan
    from steep.bench.sources import Disk
    from steep.bench.store import Store
    from steep.cli.bench import best_device, progress_line
    from steep.training import TrainingSpec, train

    given = None
    if recipe == "digits":
        given = store / "digits.safetensors"
        if not given.exists():
            train(TrainingSpec.from_recipe("train-digits"), given)
    grid = plan(recipe, only=["setting=paper"], given=given, root=root)
    with Store(store) as rows, progress_line(console) as progress:
        local.run(grid.cells, rows, sources=Disk(root, grid.found), device=best_device(device), progress=progress)
