"""`steep corrupt`: a corruption benchmark in the published file layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from steep import corruptions
from steep.cli.options import Root
from steep.cli.output import console, print_table, progress_bar
from steep.data import Comparison, load, write
from steep.data import check as compare
from steep.data.known import data_set
from steep.errors import InputError


def corrupt(
    name: Annotated[str, typer.Argument(help="The clean set, such as cifar10.")],
    out: Annotated[Path | None, typer.Option(help="The folder to write.")] = None,
    severity: Annotated[list[int] | None, typer.Option(help="1 to 5; may be repeated.")] = None,
    only: Annotated[str | None, typer.Option(help="Corruptions, such as fog,snow; or: all (19).")] = None,
    seed: Annotated[int, typer.Option(help="Decides every random draw.")] = 0,
    check: Annotated[Path | None, typer.Option(help="Compare this set with ours.")] = None,
    sample: Annotated[int, typer.Option(min=2, help="Pictures --check compares.")] = 500,
    device: Annotated[str, typer.Option(help="Where to compute, such as cuda.")] = "cpu",
    root: Root = None,
    size: Annotated[int | None, typer.Option(help="Resize to size × size first; not cifar or tiny-imagenet.")] = None,
    crop: Annotated[
        float | None, typer.Option(help="Of picture files: cut this share out of the middle, such as 0.875.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Of a set with domains.")] = None,
) -> None:
    """Write corrupted variants of a set in the published layout. Run again after a stop: it goes on where it was.

    Example: steep corrupt cifar10 --out CIFAR-10-C

    Example: steep corrupt cifar10 --out DIR --only fog,snow --severity 1 --severity 5

    Example: steep corrupt cifar10 --check CIFAR-10-C

    Example: steep corrupt folder --root PICTURES --size 224 --crop 0.875 --out PICTURES-C
    """
    if out is None and check is None:
        raise InputError("steep corrupt: nothing to do. Give --out DIR to write a set or --check DIR to compare one")
    names = None if only is None else [word.strip() for word in only.split(",") if word.strip()]
    if names == ["all"]:
        names = list(corruptions.CORRUPTIONS)
    levels = severity or [1, 2, 3, 4, 5]
    if name.endswith("-c"):
        raise InputError(f"steep corrupt {name}: give the clean set instead: steep corrupt {name.removesuffix('-c')}")
    if (domains := data_set(name).domains) and domain is None:
        raise InputError(f"steep corrupt {name}: give --domain, one of {', '.join(domains)}")
    data = load(name, "test", root, size=size, crop=crop, domain=domain, stream=True)
    screen = console()
    how: dict[str, Any] = {"only": names, "severities": levels, "seed": seed}
    if out is not None:
        try:
            with progress_bar(screen) as progress:
                done = write(data, out, **how, device=device, progress=progress)
        except KeyboardInterrupt:
            screen.print(f"stopped; what is finished is in {out}, the same command goes on from there")
            raise
        screen.print(f"{out}: {len(done.made)} made, {len(done.kept)} already there and right")
    if check is not None:
        with progress_bar(screen) as progress:
            rows = compare(check, data, **how, sample=min(sample, len(data)), progress=progress)
        _table(rows, check)
        if any(row.verdict == "differs" for row in rows):
            raise typer.Exit(1)


def _table(rows: list[Comparison], folder: Path) -> None:
    """Print how far theirs is from ours, in columns that fit a terminal of 80 characters with every name whole."""
    title = escape(f"{folder}: theirs − ours, in grey levels")
    table = Table("corruption", "mean", "spread", "to clean", "within 1", "verdict", title=title)
    colours = {"identical": "green", "same": "green", "differs": "red"}
    for row in rows:
        apart = [f"{theirs - ours:+.2f}".replace("-", "−") for theirs, ours in (row.mean, row.std, row.distance)]
        within = "" if row.within is None else f"{row.within:.2%}"
        table.add_row(f"{row.corruption} {row.severity}", *apart, within, f"[{colours[row.verdict]}]{row.verdict}")
    print_table(table)
    for theirs, ours in dict.fromkeys(row.frost for row in rows if row.frost is not None):
        typer.echo(f"frost pictures: theirs {theirs}, ours {ours}")
