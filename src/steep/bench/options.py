"""What a recipe or the command line may say: a constraint for each key, seeds, choices, hyper-parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from steep import recipes
from steep.core.constraints import Constraint, Whole, added_later
from steep.errors import InputError, UnknownNameError, unknown
from steep.methods import make

CHOICES = ("method", "shift", "severity", "seed", "setting", "source")
"""What --only can choose by."""

MOST_SEEDS = 10_000  # of one recipe; each is a run of every method on every shift


class Many(Constraint):
    """A list of values that all keep one constraint; a single one stands for a list of it."""

    def __init__(self, item: Constraint) -> None:
        self.item, self.expected = item, f"a list, each {item.expected}"

    def normalise(self, value: Any) -> list[Any]:
        """Take a list that is not empty."""
        items = value if isinstance(value, list) else [value]
        if not items:
            raise ValueError
        return [self.item.normalise(item) for item in items]


class BatchSize(Whole):
    """A whole number of images, or "full" for the whole set, which is stored as 0."""

    def __init__(self) -> None:
        super().__init__(least=1)
        self.expected += ' or "full"'

    def normalise(self, value: Any) -> int:
        """Take a number or the word."""
        return 0 if value == "full" else super().normalise(value)


class Seeds(Constraint):
    """Seeds: a list, one number, `0..4` (both ends included) or `0,3`.

    >>> Seeds().check("seeds", "0..4"), Seeds().check("seeds", "0,3"), Seeds().check("seeds", [7])
    ([0, 1, 2, 3, 4], [0, 3], [7])
    """

    expected = f"such as 0..4, 0,3 or [0, 1], at most {MOST_SEEDS:,} of them"

    def normalise(self, value: Any) -> list[int]:
        """Take each seed once."""
        if isinstance(value, str) and ".." in value:
            first, last = map(int, value.split(".."))
            seeds: Iterable[Any] = range(first, min(last, first + MOST_SEEDS) + 1)
        elif isinstance(value, str):
            seeds = map(int, value.split(","))
        else:
            seeds = value if isinstance(value, list) else [value]
        seeds = list(dict.fromkeys(map(Whole(least=0, most=2**63 - 1).normalise, seeds)))
        if not 1 <= len(seeds) <= MOST_SEEDS:
            raise ValueError
        return seeds


def check(where: str, table: Any, known: Mapping[str, Constraint]) -> dict[str, Any]:
    """Bring the values of a table to their stored form; refuse a key nobody reads, and a value its key cannot have.

    >>> check("recipe net", {"steps": "two"}, {"steps": Whole(least=1)})
    Traceback (most recent call last):
    steep.errors.InputError: recipe net: steps: expected a whole number of at least 1, got 'two'
    """
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: expected a table such as {{}}, got {table!r}")
    recipes.check_keys(where, table, known)
    try:
        return {key: known[key].check(key, value) for key, value in table.items()}
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


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

    One that was added after rows were stored is left out where it is as it was before: they keep their keys.

    >>> hyper("here", "tent", "paper", {"lr": 1})["lr"]
    1.0
    >>> [sorted(hyper("here", "tent", "paper", {"loss": loss})) for loss in ("entropy", "come")]
    [['lr', 'params', 'statistics'], ['loss', 'lr', 'params', 'statistics']]
    """
    try:
        usual, method = make(name, setting), make(name, setting, **settings)
    except (InputError, UnknownNameError) as error:
        raise type(error)(f"{where}: {error}") from error
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    as_before = {key for key in added_later(type(method)) if values[key] == getattr(usual, key)}
    return {key: value for key, value in values.items() if key not in as_before}


def changed_by_tuning(name: str) -> set[str]:
    """Name the hyper-parameters in which the two settings of a method differ.

    >>> changed_by_tuning("sar")
    {'margin_classes'}
    """
    paper, tuned = make(name), make(name, "tuned")
    return {field.name for field in fields(paper) if getattr(paper, field.name) != getattr(tuned, field.name)}
