"""`steep analyze`: the paper's analyses, as rows, figures and the numbers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from steep import recipes
from steep.analysis import ANALYSES, Analysis, cells, stream
from steep.bench.options import admits, choices
from steep.bench.recipe import plan
from steep.bench.rows import Row, encode, read
from steep.bench.store import Store
from steep.cli.follow import follow_run
from steep.cli.options import Device, Limit, Only, Root, Seeds, Weights, choose_device
from steep.cli.output import console, print_failures, running
from steep.errors import InputError, check_known
from steep.files import write_bytes
from steep.report.export import formats, write_analysis


def analyze(
    name: Annotated[
        str,
        typer.Argument(
            help="energy-error, energy-steps, energy-severity, samples, calibration, sensitivity or stream."
        ),
    ],
    file: Annotated[Path | None, typer.Argument(help="Of stream: what a Recorder wrote.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A bench recipe or .toml file (default: the analysis's own).")
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Take rows steep bench has stored, instead of a recipe; repeatable."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="tea.lr=1e-4, limit=500, samples.steps=200; repeatable."),
    ] = None,
    only: Only = None,
    seeds: Seeds = None,
    limit: Limit = None,
    weights: Weights = None,
    root: Root = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for rows and figures (default: runs/analyze-NAME).")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="Of figures: some of png,svg,pdf,html,json.")] = "png,svg",
    follow: Annotated[bool, typer.Option("--follow", help="Of stream: show the run in the terminal.")] = False,
) -> None:
    """Run an analysis: rows first, figures from the rows, and a CSV of the numbers behind each figure.

    Stopped at any moment, the same command goes on from there; what is stored is not run again.

    Example: steep analyze calibration --recipe analyze-digits --out runs/calibration

    Example: steep analyze energy-severity --run runs/table-1-cifar10 --only method=tea,source

    Example: steep analyze samples --recipe analyze-samples-mnist --set samples.steps=200 --format png,pdf

    Example: steep analyze stream run.jsonl --follow
    """
    check_known("analysis", (*ANALYSES, "stream"), name)
    forms = formats(form)
    folder = out or Path("runs") / f"analyze-{name}"
    if name == "stream":
        _stream(file, folder, forms, follow)
        return
    if file is not None or follow:
        raise InputError(f"{name}: a FILE and --follow are for stream. For stored rows: --run {file or 'STORE'}")
    analysis, complete = ANALYSES[name], True
    if run:
        if recipe or sets or seeds or limit or weights:
            raise InputError("--run: takes rows as they are; only --only can choose among them. Drop the other options")
        stored = _stored(analysis, run, only or [])
    else:
        options = {"only": only or [], "seeds": seeds, "limit": limit, "weights": weights, "root": root}
        stored, complete = _measure(analysis, recipe or analysis.recipe, sets or [], options, folder, device)
    rows = analysis.rows(stored)
    for line in analysis.summary(rows):
        typer.echo(line)
    _write(rows, folder, forms, analysis.draw(rows, folder))
    if not complete:
        raise typer.Exit(1)


def _stored(analysis: Analysis, stores: Sequence[Path], only: Sequence[str]) -> list[Row]:
    """Take rows a bench has made."""
    if isinstance(analysis, cells.MeasuringAnalysis):
        raise InputError(
            f"{analysis.name}: measures more than a bench stores. Use --recipe, such as --recipe {analysis.recipe}"
        )
    chosen = choices(only)
    stored = {row["key"]: row for store in stores for row in read(store)}
    rows = [row for row in stored.values() if admits(chosen, row["spec"]) and not row.get("segments")]
    if not rows:
        raise InputError(f"--run: expected rows of single shifts in {', '.join(map(str, stores))}, got none")
    return rows


def _measure(
    analysis: Analysis, recipe: str, sets: Sequence[str], options: dict[str, Any], folder: Path, device: str | None
) -> tuple[list[Row], bool]:
    """Run what is missing: (the stored rows of the grid, whether all of them are there)."""
    screen, place, prefix = console(), choose_device(device), f"{analysis.name}."
    settings = dict(recipes.assignment(text.removeprefix(prefix)) for text in sets if text.startswith(prefix))
    cells.resolve(analysis, settings)  # a wrong one is refused before anything runs
    others = [text for text in sets if not text.startswith(prefix)]
    grid = plan(recipe, sets=others, own_domain=analysis.own_domain, **options)
    sources = grid.sources(options["root"])
    with Store(folder / "cells.jsonl") as store:
        with running(screen, grid, store) as progress:
            how: dict[str, Any] = {"device": place, "options": settings, "progress": progress}
            outcome = cells.run(analysis, grid.cells, store, sources=sources, folder=folder, **how)
        print_failures(screen, outcome)
        rows = [store[cell.key()] for cell in grid.cells if cell.key() in store]
    if not rows:
        raise InputError(f"{analysis.name}: none of {len(grid.cells)} cells could be run")
    if missing := len(grid.cells) - len(rows):
        screen.print(f"{missing} of {len(grid.cells)} cells are missing: figures are of what is there", style="yellow")
    return rows, not outcome.failed


def _stream(file: Path | None, folder: Path, forms: Sequence[str], follow: bool) -> None:
    if file is None:
        raise InputError("stream: expected a FILE that a Recorder wrote. Run: steep analyze stream FILE")
    if follow:
        follow_run(file, Console())
        return
    rows = stream.read(file)
    if not rows:
        raise InputError(f"{file}: expected at least one batch, got none")
    if (folder / "rows.jsonl").resolve() == file.resolve():
        raise InputError(f"--out: {folder} holds the recorded file itself. Choose another folder")
    last = rows[-1]
    typer.echo(f"{last['label']}: {last['batch']} batches, {last['undone']} steps undone by the guard")
    if (gain := stream.estimate(rows)) is not None:
        typer.echo(gain.sentence)
    _write(rows, folder, forms)


def _write(rows: list[Row], folder: Path, forms: Sequence[str], pictures: Sequence[Path] = ()) -> None:
    """Write the flat rows and their figures, and name the files."""
    out = write_bytes(folder / "rows.jsonl", b"".join(map(encode, rows)))
    files = [out, *pictures, *write_analysis(rows, folder, forms)]
    typer.echo(f"written: {', '.join(map(str, files))}")
