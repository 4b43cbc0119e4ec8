"""`steep methods | models | recipes`: what there is."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from steep.errors import check_known
from steep.methods import METHODS, make
from steep.models import MODELS
from steep.recipes import KINDS, grouped


def methods(name: Annotated[str | None, typer.Argument(help="One method, in detail.")] = None) -> None:
    """List the methods and what each does; of one, its paper and hyper-parameters, and what `tuned` changes.

    Example: steep methods

    Example: steep methods tea
    """
    if name is None:
        _print_pairs({each: (method.__doc__ or "").splitlines()[0] for each, method in METHODS.items()})
        typer.echo("\nsteep methods NAME: its paper and hyper-parameters")
        return
    check_known("method", METHODS, name)
    method, paper, tuned = METHODS[name], make(name), make(name, "tuned")
    lines = {
        name: (method.__doc__ or "").splitlines()[0],
        "equation": inspect.cleandoc(method.equation),
        "paper": method.paper,
        "answers": f"with the model {method.predicts} its update",
    }
    for field in fields(paper):
        value, other = getattr(paper, field.name), getattr(tuned, field.name)
        lines[field.name] = _text(value) + (f" (tuned: {_text(other)})" if other != value else "")
    _print_pairs({key: text for key, text in lines.items() if text})


def models() -> None:
    """List the models.

    Example: steep models
    """
    _print_pairs(
        {name: f"{info.summary}. {info.paper}. Options: {', '.join(info.options)}" for name, info in MODELS.items()}
    )
    typer.echo("\nand any other wrn-DEPTH-WIDTH with a depth of 6n + 4")


def recipes(
    kind: Annotated[str | None, typer.Option(help="train or bench.")] = None,
) -> None:
    """List the recipes by what they are for. Each is a TOML file; a path to your own works wherever a name does.

    Example: steep recipes

    Example: steep recipes --kind bench
    """
    if kind is not None:
        check_known("kind of recipe", KINDS, kind)
    for number, (group, entries) in enumerate(grouped(kind).items()):
        typer.secho(("\n" if number else "") + group.capitalize(), bold=True)
        _print_pairs(entries)


def _print_pairs(pairs: Mapping[str, str]) -> None:
    """Print names, never cut since they are to be typed, each with a text that wraps beside it."""
    table = Table(Column(no_wrap=True), Column(overflow="fold"), box=None, show_header=False, pad_edge=False)
    for name, text in pairs.items():
        table.add_row(name, text)
    Console(highlight=False, emoji=False, markup=False).print(table)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
