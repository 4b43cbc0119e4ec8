"""`steep demo`: the whole story in about two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from steep.bench.recipe import Plan


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(demo)


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the rows and the page go.")] = Path("runs/demo"),
    root: Annotated[Path | None, typer.Option("--root", help="Where data lives.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use the bundled digits; fetch nothing.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many images of a set.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Such as cuda (default: cuda where it is).")] = None,
) -> None:
    """Adapt a small model to corrupted pictures with all ten methods, and compare.

    The first run fetches CIFAR-10 once; with no network it takes scikit-learn's digits instead. A second run only
    prints what is stored already: delete the folder to measure again.

    Example: steep demo

    Example: steep demo --offline --out runs/digits-demo
    """
    from rich.console import Console

    from steep.bench.recipe import plan
    from steep.bench.rows import file_of, read
    from steep.cli.train import chosen
    from steep.files import writing
    from steep.report.page import html
    from steep.report.tables import build
    from steep.report.terminal import terminal

    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    place = chosen(device)  # a slip is said before anything is fetched
    store = out / "cifar10"
    grid = plan("demo", only=["setting=paper"], limit=limit, root=root)
    if offline or (grid.left(store) and not _cifar10(console, root)):  # all rows there: no data needed
        if offline:
            console.print("running on scikit-learn's bundled digits, as asked (--offline)")
        store = out / "digits"
        grid = _digits(store, limit)
    whole = _measure(console, grid, store, root, place)
    keys = {cell.key() for cell in grid.cells}
    tables = build([row for row in read(store) if row["key"] in keys])
    typer.echo(terminal(tables, colour=True), nl=False)
    page = store / "report.html"
    with writing(page) as file:
        file.write(html(tables, "steep demo").encode())
    typer.echo(f"\nthe same as a page: {page}\nthe rows: {file_of(store)}")
    if not whole:
        raise typer.Exit(1)


def _cifar10(console: Console, root: Path | None) -> bool:
    """Have the test images here, from the first source that answers; say in one line why not, and what instead."""
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
            why = " ".join(str(error).split()).rstrip(".")
            said = f"CIFAR-10 cannot be fetched, running on scikit-learn's bundled digits instead ({why})"
            console.print(said, markup=False, style="yellow")
            return False
    return True


def _digits(store: Path, limit: int | None) -> Plan:
    """Train the small model, a matter of seconds, and plan the same comparison on digits."""
    from steep.bench.recipe import plan
    from steep.training import TrainingSpec, train

    weights = store / "digits.safetensors"
    # resume: the run before may have been stopped half-way; a finished one is left as it is
    train(TrainingSpec.from_recipe("train-digits"), weights, resume=True)
    return plan("digits", only=["setting=paper"], limit=limit, given=weights)


def _measure(console: Console, grid: Plan, store: Path, root: Path | None, device: str) -> bool:
    """Run what is missing; False where a cell failed."""
    from steep.bench import local
    from steep.bench.sources import Disk
    from steep.bench.store import Store
    from steep.cli.bench import progress_line, tell_failures, tell_stopped

    with Store(store) as rows:
        try:
            with progress_line(console) as progress:
                done = local.run(grid.cells, rows, sources=Disk(root, grid.found), device=device, progress=progress)
        except KeyboardInterrupt:
            tell_stopped(console, grid, rows)
            raise
    tell_failures(console, done)
    return not done.failed
