"""`steep report`: tables, figures and the page from stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from steep.report.runs import Runs


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Runs: folders with rows.jsonl, or .jsonl files.", metavar="RUN")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal (default), markdown, latex, csv or html; of figures: png,svg,pdf,html,json.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file to write instead of the screen.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", help="A folder for every figure, and its data as CSV."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the page (default: the runs' names).")] = None,
) -> None:
    """Show what was measured: tables, figures, one page for a browser.

    Tables are method × shift, mean ± deviation over seeds, average, mCE, with the paper's figures beside ours.

    Example: steep report runs/digits

    Example: steep report runs/digits --format html --out page.html

    Example: steep report runs/digits --figures figures --format png,pdf

    Example: steep report runs/appendix-cifar10 runs/clean-cifar10 --format markdown

    Example: steep report runs/table-1-cifar10 --format latex --out table.tex
    """
    from steep.errors import unknown
    from steep.report.formats import FORMATS
    from steep.report.runs import read

    pages = (*FORMATS, "html")
    if figures is None and form is not None and form not in pages:  # before anything is read
        raise unknown("format", form, pages)
    found = read(runs)
    if figures is not None:
        from steep.report.export import write

        for path in write(found, figures, form):
            typer.echo(str(path))
        return
    _write(_text(found, form or "terminal", title), out)


def _write(text: str, out: Path | None) -> None:
    from steep.files import writing

    if out is None:
        typer.echo(text, nl=False)
        return
    with writing(out) as file:  # whole or not at all
        file.write(text.encode())


def _named(found: Runs) -> str:
    return ", ".join(dict.fromkeys(source.name for source in found.sources))


def _text(found: Runs, form: str, title: str | None) -> str:
    from steep.errors import InputError
    from steep.report.formats import FORMATS
    from steep.report.page import html
    from steep.report.tables import build

    if not found.rows and form in FORMATS:
        raise InputError(f"{form}: expected rows of a bench, got others only. Choose --format html")
    tables = build(found.rows) if found.rows else []
    if form == "html":
        return html(tables, title or _named(found), sources=found.sources, analyses=found.analyses, notes=found.notes)
    return FORMATS[form](tables)
