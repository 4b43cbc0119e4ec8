"""What a recipe or the command line says, as values: seeds, assignments, choices, hyper-parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

from steep import recipes
from steep.errors import InputError, UnknownNameError, unknown
from steep.methods import make

Kinds: TypeAlias = tuple[type, ...]

CHOICES = ("method", "shift", "severity", "seed", "setting", "source")
"""What --only can choose by."""

POSITIVE = ("size", "channels", "limit")
"""Keys of which 0 or less makes no sense."""


def parse_seeds(text: Any) -> list[int]:
    """Read seeds: a list, one number, `0..4` (both ends included) or `0,3`.

    >>> parse_seeds("0..4"), parse_seeds("0,3"), parse_seeds([7])
    ([0, 1, 2, 3, 4], [0, 3], [7])
    """
    try:
        if isinstance(text, str) and ".." in text:
            first, last = (int(end) for end in text.split(".."))
            found = list(range(first, last + 1))
        else:
            words = text.split(",") if isinstance(text, str) else text if isinstance(text, list) else [text]
            found = [_whole(word) for word in words]
    except ValueError:
        found = []
    if not found or min(found) < 0:
        raise InputError(f"seeds: expected such as 0..4, 0,3 or [0, 1], got {text!r}")
    return list(dict.fromkeys(found))


def _whole(word: Any) -> int:
    """Read a whole number, typed or written; 1.5 is none, though `int` would make one of it."""
    if isinstance(word, (str, int)) and not isinstance(word, bool):
        return int(word)
    raise ValueError(word)


def choices(only: Iterable[str]) -> dict[str, set[str]]:
    """Read what --only says.

    >>> sorted(choices(["method=tea,tent", "method=bn"])["method"])
    ['bn', 'tea', 'tent']
    """
    chosen: dict[str, set[str]] = {}
    for text in only:
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--only: expected such as method=tea,tent or shift=fog, got {text!r}")
        if name not in CHOICES:
            raise unknown("thing to choose by in --only", name, CHOICES)
        chosen.setdefault(name, set()).update(word.strip() for word in values.split(",") if word.strip())
    return chosen


def hyper(where: str, name: str, setting: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve every hyper-parameter of a method, by the constraints that its fields declare.

    >>> hyper("here", "tent", "paper", {"lr": 1})["lr"]
    1.0
    """
    try:
        method = make(name, setting, **settings)
    except (InputError, UnknownNameError) as error:
        raise type(error)(f"{where}: {error}") from error
    return {item.name: getattr(method, item.name) for item in fields(method)}


def hyper_changed(name: str) -> set[str]:
    """Name the hyper-parameters in which the two settings of a method differ.

    >>> hyper_changed("sar")
    {'margin_classes'}
    """
    paper, tuned = make(name), make(name, "tuned")
    return {item.name for item in fields(paper) if getattr(paper, item.name) != getattr(tuned, item.name)}


def check(where: str, table: Any, known: Mapping[str, Kinds]) -> None:
    """Refuse a key nobody reads, and a value of another kind than its key has.

    >>> check("recipe mine", {"steps": "two"}, {"steps": (int,)})
    Traceback (most recent call last):
    steep.errors.InputError: recipe mine: steps: expected int, got 'two'
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: expected a table, got {table!r}")
    recipes.check_keys(where, table, known)
    for key, value in table.items():
        kinds = known[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            words = " or ".join(kind.__name__ for kind in kinds)
            raise InputError(f"{where}: {key}: expected {words}, got {value!r}")
        if isinstance(value, list) and any(isinstance(one, (list, dict)) for one in value):
            raise InputError(f"{where}: {key}: expected a plain list, got {value!r}")
        if key in POSITIVE and isinstance(value, int) and value < 1:
            raise InputError(f"{where}: {key}: expected a whole number of 1 or more, got {value!r}")
