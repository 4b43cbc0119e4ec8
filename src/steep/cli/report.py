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
            help="terminal (default), markdown, latex, csv, html or docs; of figures: png,svg,pdf,html,json.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="A file to write instead of the screen.")] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", help="A folder for every figure, and its data as CSV; of docs: for its pictures."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Of the page (default: the runs' names).")] = None,
    reasons: Annotated[
        Path | None,
        typer.Option("--explanations", help="Of docs: a .toml file that says why numbers differ from the paper's."),
    ] = None,
) -> None:
    """Show what was measured: tables, figures, one page for a browser.

    Tables are method × shift, mean ± deviation over seeds, average, mCE, with the paper's figures beside ours.

    Example: steep report runs/digits

    Example: steep report runs/digits --format html --out page.html

    Example: steep report runs/digits --figures figures --format png,pdf

    Example: steep report runs/appendix-cifar10 runs/clean-cifar10 --format markdown

    Example: steep report runs/table-1-cifar10 --format latex --out table.tex

    Example: steep report results --format docs --explanations results/explanations.toml --out docs/results.md
    """
    from steep.errors import InputError, unknown
    from steep.report.formats import FORMATS
    from steep.report.runs import read

    pages = (*FORMATS, "html", "docs")
    if figures is None and form is not None and form not in pages:  # before anything is read
        raise unknown("format", form, pages)
    if reasons is not None and form != "docs":
        raise InputError("--explanations: is for --format docs, got another format. Add --format docs")
    found = read(runs)
    if form == "docs":
        _write(_docs(found, title, reasons, figures, out), out)
        return
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


def _docs(found: Runs, title: str | None, reasons: Path | None, figures: Path | None, out: Path | None) -> str:
    from steep.report.docs import docs
    from steep.report.explanations import read
    from steep.report.plates import Plates

    home = None if out is None else out.parent
    return docs(
        found,
        title or _named(found),
        reasons=read(reasons) if reasons is not None else (),
        plates=Plates(figures, home or Path()) if figures is not None else None,
        home=home,
    )


def _named(found: Runs) -> str:
    return ", ".join(dict.fromkeys(source.name for source in found.sources))


def _text(found: Runs, form: str, title: str | None) -> str:
    from steep.errors import InputError
    from steep.report.formats import FORMATS
    from steep.report.page import html
    from steep.report.tables import build

    if not found.rows and form in FORMATS:
        raise InputError(f"{form}: expected rows of a bench, got others only. Choose --format html, or docs")
    tables = build(found.rows) if found.rows else []
    if form == "html":
        return html(tables, title or _named(found), sources=found.sources, analyses=found.analyses, notes=found.notes)
    return FORMATS[form](tables)
