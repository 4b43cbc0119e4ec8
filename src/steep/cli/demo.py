"""`steep demo`: the whole story in a minute."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console

from steep import recipes
from steep.analysis.pictures import strips
from steep.bench import local
from steep.bench.recipe import Plan, plan
from steep.bench.rows import Row, file_of, grouped, read
from steep.bench.spec import label_of
from steep.bench.store import Store
from steep.cli.options import Device, Limit, Root, choose_device
from steep.cli.output import console, print_failures, progress_bar, running
from steep.data import default_root, fetch, load
from steep.data.known import data_set
from steep.errors import DataError
from steep.files import write_bytes
from steep.report.formats import terminal
from steep.report.page import html
from steep.report.tables import build
from steep.training import TrainingSpec, train

RECIPE, OFFLINE_RECIPE = "demo", "digits"  # the second's data come with a library, its model is trained in seconds
OFFLINE = "running on scikit-learn's bundled digits"


def demo(
    out: Annotated[Path, typer.Option(help="Where the rows and the page go.")] = Path("runs/demo"),
    root: Root = None,
    offline: Annotated[bool, typer.Option("--offline", help="Use the bundled digits; fetch nothing.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Run every method, not only the best known.")] = False,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    limit: Limit = None,
    device: Device = None,
) -> None:
    """Adapt a small model to corrupted pictures with a few methods, and compare.

    The first run fetches CIFAR-10 once; with no network it takes scikit-learn's digits instead. A second run only
    prints what is stored already: delete the folder to measure again.

    Example: steep demo --open

    Example: steep demo --offline --all --out runs/digits-demo
    """
    screen, place = console(), choose_device(device)  # a wrong device is refused before anything is fetched
    grid = _plan(RECIPE, every, limit, root=root)
    store = out / _clean_set(grid)
    if offline:
        screen.print(f"{OFFLINE}, as asked (--offline)")
    elif grid.left(store):  # all rows there: no data needed
        offline = not _have_data(screen, _clean_set(grid), root)
    if offline:
        table = recipes.read(OFFLINE_RECIPE)
        store = out / table["data"].removesuffix("-c")
        file = store / f"{table['weights']}.safetensors"  # left as it is where it is there; a stopped run goes on
        weights = train(TrainingSpec.from_recipe(table["train"]), file, resume=True).weights
        grid = _plan(OFFLINE_RECIPE, every, limit, weights=weights)
    sources = grid.sources(root)
    with Store(store) as rows, running(screen, grid, rows) as progress:
        outcome = local.run(grid.cells, rows, sources=sources, device=place, progress=progress)
    print_failures(screen, outcome)
    keys = {cell.key() for cell in grid.cells}
    stored = [row for row in read(store) if row["key"] in keys]
    tables = build(stored)
    typer.echo(terminal(tables, colour=True), nl=False)
    content = html(tables, "steep demo", pictures=strips(grid.cells, sources))
    page = write_bytes(store / "report.html", content.encode())
    typer.echo(f"\n{_summary(stored, grid.cells[0].method)}\nthe same as a page: {page}\nthe rows: {file_of(store)}")
    if browse:
        webbrowser.open(page.resolve().as_uri())
    if outcome.failed:
        raise typer.Exit(1)


def _plan(
    recipe: str, every: bool, limit: int | None, *, root: Path | None = None, weights: Path | None = None
) -> Plan:
    few = [] if every else [f"method={','.join(recipes.read(recipe)['demo'])}"]
    return plan(recipe, only=["setting=paper", *few], limit=limit, root=root, weights=weights)


def _clean_set(grid: Plan) -> str:
    return grid.cells[0].data.removesuffix("-c")


def _have_data(screen: Console, name: str, root: Path | None) -> bool:
    """Have the test images here, from the first source that answers; where there is none, say so in one line."""
    title = data_set(name).title
    try:
        load(name, root=root, limit=1)
    except DataError:
        try:
            screen.print(f"fetching {title}, once")
            with progress_bar(screen) as progress:
                fetch(name, root or default_root(), progress)
        except DataError as error:
            reason = " ".join(str(error).split()).rstrip(".")
            screen.print(f"{title} cannot be fetched, {OFFLINE} instead ({reason})", style="yellow")
            return False
    return True


def _summary(rows: Sequence[Row], baseline: str) -> str:
    """Say in a sentence what adapting brings on corrupted pictures, against the method that does not adapt.

    >>> rows = [("source", 0.3), ("tent", 0.6), ("tea", 0.7), ("source", 0.4), ("tent", 0.8), ("tea", 0.9)]
    >>> _summary([{"accuracy": a, "spec": {"method": m, "severity": 5}} for m, a in rows], "source")
    'Adapting lifts accuracy on corrupted pictures from 35 % to 80 % (tea).'
    """
    shifted = [row for row in rows if row["spec"]["severity"]]  # 0 is the clean test set
    methods = grouped(shifted, lambda row: label_of(row["spec"]))
    means = {name: 100 * fmean(row["accuracy"] for row in same) for name, same in methods.items()}
    before = means.pop(baseline, None)
    if before is None or not means:
        return "Too few cells have run to say what adapting brings."
    best = max(means, key=means.__getitem__)
    verb = "lifts" if means[best] > before else "brings"
    return f"Adapting {verb} accuracy on corrupted pictures from {before:.0f} % to {means[best]:.0f} % ({best})."
