"""Recipes: what to train and what to measure, as data. A recipe is a TOML file and cannot run code.

Each has a `kind` ("train" or "bench"), a one-line `about`, and keys that its reader checks. A packaged one also has a
`group`, under which it is listed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from steep.errors import InputError, check_known, unknown

KINDS = ("train", "bench")
GROUPS = ("first steps", "tables of the paper", "other streams and sizes", "analyses", "source models")


def names(kind: str | None = None) -> list[str]:
    """List the packaged recipes, of one kind or all.

    >>> "paper" in names()          # the paper's own figures are data, not a recipe
    False
    """
    files = (file.name for file in resources.files(__name__).iterdir() if file.name.endswith(".toml"))
    every = sorted(name.removesuffix(".toml") for name in files)
    return [name for name in every if name != "paper" and (kind is None or read(name)["kind"] == kind)]


def grouped(kind: str | None = None) -> dict[str, dict[str, str]]:
    """Give the packaged recipes by what they are for: group → name → what it is about.

    >>> list(grouped())[0], "digits" in grouped()["first steps"]
    ('first steps', True)
    """
    groups: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for name in names(kind):
        table = tomllib.loads((resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8"))
        groups[table["group"]][name] = table["about"]
    return {group: recipes for group, recipes in groups.items() if recipes}


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
    table.pop("group", None)  # says where it is listed, and nothing about what it does
    return table


def paper() -> dict[str, Any]:
    """Read every figure of the paper's tables.

    >>> paper()["block"][0]["methods"]["source"]
    [94.77]
    """
    return tomllib.loads((resources.files(__name__) / "paper.toml").read_text(encoding="utf-8"))


def check_keys(where: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a key that nobody reads, with the near match and the valid ones."""
    check_known(f"key of {where}", set(known), *table)


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
