"""`steep report`: tables, figures and the page from stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steep.errors import InputError, unknown
from steep.files import write_bytes
from steep.report.export import PICTURES, formats, write
from steep.report.formats import FORMATS, terminal
from steep.report.page import html
from steep.report.runs import read
from steep.report.tables import build


def report(
    runs: Annotated[list[Path], typer.Argument(help="Runs: folders with rows.jsonl, or .jsonl files.", metavar="RUN")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="terminal (default), markdown, latex, csv or html; of figures: png,svg,pdf,html,json."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write (html: RUN/report.html).")] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for every figure, and its data as CSV.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page (default: the runs' names).")] = None,
) -> None:
    """Show what was measured: tables, figures, one page for a browser.

    Tables are method × shift, mean ± deviation over seeds, average, mCE, with the paper's figures beside ours.

    Example: steep report runs/digits

    Example: steep report runs/digits --format html      (writes runs/digits/report.html)

    Example: steep report runs/digits --figures figures --format png,pdf

    Example: steep report runs/appendix-cifar10 runs/clean-cifar10 --format markdown

    Example: steep report runs/table-1-cifar10 --format latex --out table.tex
    """
    known = ("terminal", *FORMATS, "html")
    if figures is None and form is not None and form not in known:  # before anything is read
        raise unknown("format", form, known)
    stored = read(runs)
    if figures is not None:
        for path in write(stored, figures, PICTURES if form is None else formats(form)):
            typer.echo(str(path))
        return
    if not stored.rows and form != "html":
        raise InputError(f"{form or 'terminal'}: expected rows of a bench, got others only. Choose --format html")
    tables = build(stored.rows) if stored.rows else []
    if form == "html":
        title = title or ", ".join(dict.fromkeys(source.name for source in stored.sources))
        page = html(tables, title, sources=stored.sources, analyses=stored.analyses, notes=stored.notes)
        typer.echo(str(write_bytes(out or _page_of(runs[0]), page.encode())))
        return
    text = FORMATS[form](tables) if form in FORMATS else terminal(tables, colour=out is None)
    if out is None:
        typer.echo(text, nl=False)  # which drops the colours where the screen is none
    else:
        write_bytes(out, text.encode())


def _page_of(run: Path) -> Path:
    """Name the page of a run: report.html in its folder, or beside a file of rows under that file's name."""
    run = run.expanduser()
    if run.suffix != ".jsonl":
        return run / "report.html"
    return run.with_name("report.html") if run.name == "rows.jsonl" else run.with_suffix(".html")
