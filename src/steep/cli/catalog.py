"""`steep methods | models | recipes`: what there is, with its paper and its hyper-parameters."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated

import typer


def methods(name: Annotated[str | None, typer.Argument(help="One method only.")] = None) -> None:
    """List the methods: paper, prediction before or after the update, hyper-parameters and what `tuned` changes.

    Example: steep methods

    Example: steep methods tea
    """
    from rich.console import Console
    from rich.table import Column, Table

    from steep.errors import unknown
    from steep.methods import METHODS, make

    if name is not None and name not in METHODS:
        raise unknown("method", name, METHODS)
    folded = (Column(name, overflow="fold") for name in ("hyper-parameters (setting paper)", "tuned"))
    table = Table(Column("method", min_width=8), "predicts", *folded, "paper", show_lines=True)
    for each in METHODS if name is None else [name]:
        paper, tuned = make(each), make(each, "tuned")
        values = {f.name: (getattr(paper, f.name), getattr(tuned, f.name)) for f in fields(paper)}
        defaults = ", ".join(f"{key}={_value(own)}" for key, (own, _) in values.items())
        changed = ", ".join(f"{key}={_value(other)}" for key, (own, other) in values.items() if own != other)
        table.add_row(each, METHODS[each].predicts, defaults or "–", changed or "the same", METHODS[each].paper)
    Console().print(table, markup=False)


def models() -> None:
    """List the models.

    Example: steep models
    """
    from rich.console import Console
    from rich.table import Table

    from steep.models import MODELS

    table = Table("model", "what", "options", "paper")
    for name, info in MODELS.items():
        table.add_row(name, info.summary, ", ".join(info.options), info.paper)
    Console().print(table, markup=False)
    Console().print("and any other wrn-DEPTH-WIDTH with a depth of 6n + 4", markup=False)


def recipes(
    kind: Annotated[str | None, typer.Option("--kind", help="train or bench.")] = None,
) -> None:
    """List the recipes. Each is a TOML file; a path to one of your own works wherever a name does.

    Example: steep recipes

    Example: steep recipes --kind bench
    """
    from rich.console import Console
    from rich.table import Column, Table

    from steep.errors import unknown
    from steep.recipes import KINDS, names, read

    if kind is not None and kind not in KINDS:
        raise unknown("kind of recipe", kind, KINDS)
    known = names(kind)
    table = Table(Column("recipe", min_width=max(map(len, known))), "kind", "about")  # never cut: they are to be typed
    for name in known:
        found = read(name)
        table.add_row(name, found["kind"], found.get("about", ""))
    Console().print(table, markup=False)


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
