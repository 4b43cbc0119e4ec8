"""`steep analyze`: the paper's analyses, as rows, figures and the numbers behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from steep.analysis import Analysis
    from steep.bench.rows import Row


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(analyze)


def analyze(
    name: Annotated[
        str,
        typer.Argument(
            help="energy-error, energy-steps, energy-severity, samples, calibration, sensitivity or stream."
        ),
    ],
    file: Annotated[Path | None, typer.Argument(help="Of stream: what a Recorder wrote.")] = None,
    recipe: Annotated[
        str | None, typer.Option("--recipe", help="A bench recipe or .toml file (default: the analysis's own).")
    ] = None,
    run: Annotated[
        list[Path] | None,
        typer.Option("--run", help="Take rows steep bench has stored, instead of a recipe; repeatable."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="tea.lr=1e-4, limit=500, samples.steps=200; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME=VALUES", help="method=tea,tent or shift=fog; repeatable."),
    ] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="0..4 or 0,3, for every method.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many images of a set.")] = None,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="A file of weights, or a folder that holds them by name.")
    ] = None,
    root: Annotated[Path | None, typer.Option("--root", help="Where data lives.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Such as cuda:1 (default: cuda where it is).")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="A folder for rows and figures (default: runs/analyze-NAME).")
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
    from rich.console import Console

    from steep.analysis import ANALYSES
    from steep.errors import InputError, unknown
    from steep.report.charts.writing import formats

    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    if name != "stream" and name not in ANALYSES:
        raise unknown("analysis", name, (*ANALYSES, "stream"))
    asked = formats(form)
    folder = out or Path("runs") / f"analyze-{name}"
    if name == "stream":
        _stream(file, folder, asked, follow)
        return
    if file is not None or follow:
        raise InputError(f"{name}: a FILE and --follow are for stream. For stored rows: --run {file or 'STORE'}")
    analysis = ANALYSES[name]
    if run:
        if recipe or sets or seeds or limit or weights:
            raise InputError("--run: takes rows as they are; only --only can choose among them. Drop the other options")
        stored, whole = _stored(analysis, run, only or []), True
    else:
        options = {"only": only or [], "seeds": seeds, "limit": limit, "given": weights, "root": root}
        stored, whole = _measured(console, analysis, recipe or analysis.recipe, sets or [], options, folder, device)
    _write(analysis, stored, folder, asked)
    if not whole:
        raise typer.Exit(1)


def _stored(analysis: Analysis, stores: Sequence[Path], only: Sequence[str]) -> list[Row]:
    """Take rows a bench has made."""
    from steep.analysis.cells import chosen
    from steep.bench.rows import read
    from steep.errors import InputError

    if analysis.measure is not None:
        raise InputError(
            f"{analysis.name}: measures more than a bench stores. Use --recipe, such as --recipe {analysis.recipe}"
        )
    rows = {row["key"]: row for store in stores for row in read(store)}
    found = [row for row in chosen(list(rows.values()), only) if not row.get("segments")]
    if not found:
        raise InputError(f"--run: expected rows of single shifts in {', '.join(map(str, stores))}, got none")
    return found


def _measured(
    console: Console,
    analysis: Analysis,
    recipe: str,
    sets: Sequence[str],
    options: dict[str, Any],
    folder: Path,
    device: str | None,
) -> tuple[list[Row], bool]:
    """Run what is missing; the stored rows of the grid, and whether all of them are there."""
    from dataclasses import replace

    from steep import recipes
    from steep.analysis import cells
    from steep.bench.recipe import plan
    from steep.bench.sources import Disk
    from steep.bench.store import Store
    from steep.cli.bench import progress_line, tell_failures, tell_stopped
    from steep.cli.train import chosen
    from steep.errors import InputError

    place = chosen(device)
    own = [text for text in sets if text.startswith(f"{analysis.name}.")]
    given = dict(recipes.assignment(text.removeprefix(f"{analysis.name}.")) for text in own)
    cells.resolved(analysis, given)  # a slip is said before anything runs
    grid = plan(recipe, sets=[text for text in sets if text not in own], **options)
    grid = replace(grid, cells=tuple(analysis.more(grid.cells)))
    with Store(folder / "cells.jsonl") as store:
        for note in store.notes:
            console.print(f"{store.path}: {note}", markup=False)
        try:
            with progress_line(console) as progress:
                done = cells.run(
                    analysis,
                    grid.cells,
                    store,
                    sources=Disk(options["root"], grid.found),
                    folder=folder,
                    device=place,
                    options=given,
                    progress=progress,
                )
        except KeyboardInterrupt:
            tell_stopped(console, grid, store)
            raise
        tell_failures(console, done)
        found = [store[cell.key()] for cell in grid.cells if cell.key() in store]
    if not found:
        raise InputError(f"{analysis.name}: none of {len(grid.cells)} cells could be run")
    if len(found) < len(grid.cells):
        said = f"{len(grid.cells) - len(found)} of {len(grid.cells)} cells are missing: figures are of what is there"
        console.print(said, style="yellow", markup=False)
    return found, not done.failed


def _write(analysis: Analysis, stored: Sequence[Row], folder: Path, asked: Sequence[str]) -> None:
    """Write the flat rows, then what is made of them; say the numbers and name the files."""
    from steep.analysis import samples
    from steep.bench.rows import encode
    from steep.files import writing
    from steep.report.charts.writing import write

    rows = analysis.rows(stored)
    with writing(folder / "rows.jsonl") as file:
        file.writelines(map(encode, rows))
    for line in analysis.summary(rows):
        typer.echo(line)
    panels = samples.panels(rows, folder) if analysis.name == "samples" else []
    _name_files([folder / "rows.jsonl", *panels, *write(rows, folder, asked)])


def _stream(file: Path | None, folder: Path, asked: Sequence[str], follow: bool) -> None:
    from rich.console import Console

    from steep.analysis import stream
    from steep.bench.rows import encode
    from steep.cli import live
    from steep.errors import InputError
    from steep.files import writing
    from steep.report.charts.writing import write

    if file is None:
        raise InputError("stream: expected a FILE that a Recorder wrote. Run: steep analyze stream FILE")
    if follow:
        live.follow(file, Console())
        return
    rows = stream.read(file)
    if not rows:
        raise InputError(f"{file}: expected at least one batch, got none")
    if (folder / "rows.jsonl").resolve() == file.resolve():
        raise InputError(f"--out: {folder} holds the recorded file itself. Choose another folder")
    with writing(folder / "rows.jsonl") as out:
        out.writelines(map(encode, rows))
    last = rows[-1]
    typer.echo(f"{last['label']}: {last['batch']} batches, {last['undone']} steps undone by the guard")
    _name_files([folder / "rows.jsonl", *write(rows, folder, asked)])


def _name_files(files: Sequence[Path]) -> None:
    typer.echo("written: " + ", ".join(map(str, files)))
