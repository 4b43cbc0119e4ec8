"""`steep report`: tables from stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(parent: typer.Typer) -> None:
    """Add the command."""
    parent.command()(report)


def report(
    stores: Annotated[list[Path], typer.Argument(help="Stores: .jsonl files, or folders with rows.jsonl.")],
    form: Annotated[str, typer.Option("--format", help="terminal, markdown, latex, csv or html.")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="A file to write instead of the screen.")] = None,
) -> None:
    """Print tables: method × shift, mean ± deviation over seeds, average, mCE, and the paper's figures beside ours.

    Example: steep report runs/digits

    Example: steep report runs/appendix-cifar10 runs/clean-cifar10 --format markdown

    Example: steep report runs/table-1-cifar10 --format latex --out table.tex

    Example: steep report runs/digits --format html --out page.html
    """
    from steep.bench.rows import read
    from steep.errors import unknown
    from steep.files import writing
    from steep.report.formats import FORMATS
    from steep.report.page import html
    from steep.report.tables import build

    formats = {**FORMATS, "html": html}
    if form not in formats:
        raise unknown("format", form, formats)
    text = formats[form](build([row for store in stores for row in read(store)]))
    if out is None:
        typer.echo(text, nl=False)
        return
    with writing(out) as file:  # whole or not at all
        file.write(text.encode())
