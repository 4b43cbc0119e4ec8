"""Recipes: what to train and what to measure, as data. A recipe is a TOML file and cannot run code.

Each has a `kind` ("train" or "bench"), a one-line `about`, and keys that its reader checks.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from steep.errors import InputError, unknown

KINDS = ("train", "bench")


def names(kind: str | None = None) -> list[str]:
    """List the packaged recipes, of one kind or all.

    >>> "paper" in names()          # the paper's own figures are data, not a recipe
    False
    """
    found = sorted(
        f.name.removesuffix(".toml") for f in resources.files(__name__).iterdir() if f.name.endswith(".toml")
    )
    return [name for name in found if name != "paper" and (kind is None or read(name)["kind"] == kind)]


def read(name: str) -> dict[str, Any]:
    """Read a packaged recipe by name, or a file of your own by its path (it ends in .toml)."""
    if name.endswith(".toml"):
        path = Path(name).expanduser()
        if not path.is_file():
            raise InputError(f"recipe: no file {name}. steep recipes lists those that go by name")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"recipe {name}: expected a text file in UTF-8 ({error})") from error
    else:
        packaged = resources.files(__name__) / f"{name}.toml"
        if name == "paper" or not packaged.is_file():
            raise unknown("recipe", name, names(), listing="steep recipes")
        text = packaged.read_text(encoding="utf-8")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"recipe {name}: not valid TOML: {error}") from error
    if table.get("kind") not in KINDS:
        raise InputError(f"recipe {name}: expected kind = 'train' or 'bench', got {table.get('kind')!r}")
    return table


def paper() -> dict[str, Any]:
    """Read every figure of the paper's tables.

    >>> paper()["block"][0]["methods"]["source"]
    [94.77]
    """
    return tomllib.loads((resources.files(__name__) / "paper.toml").read_text(encoding="utf-8"))


def check_keys(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key that nobody reads, with the near match and the valid ones."""
    known = set(known)
    for key in table:
        if key not in known:
            raise unknown(f"key of {where}", key, known)


def assignment(text: str, form: str = "KEY=VALUE such as lr=1e-4") -> tuple[str, Any]:
    """Read what --set says: the value as TOML has it, or `none`, or plain text. `form` is what an error asks for.

    >>> assignment("lr=1e-4"), assignment("tea.chains=none"), assignment("batch_size=full"), assignment("clamp=[0, 1]")
    (('lr', 0.0001), ('tea.chains', None), ('batch_size', 'full'), ('clamp', [0, 1]))
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise InputError(f"--set: expected {form}, got {text!r}")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, None if value.lower() == "none" else value
