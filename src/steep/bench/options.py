"""What a recipe or the command line may say: a constraint for each key, and what --only chooses by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steep import recipes
from steep.bench.adapters import PRECISIONS
from steep.core.constraints import TABLE, TEXT, Choice, Constraint, Real, Switch, Whole
from steep.core.settings import GUARDS
from steep.core.views import VIEWS
from steep.data import PROTOCOLS
from steep.data.transform import INTERPOLATIONS, LARGEST
from steep.errors import InputError, check_known

CHOICES = ("method", "shift", "severity", "seed", "setting", "source")  # what --only can choose by
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


class Views(Choice):
    """Views of `steep.adapt`, or "none": for a method that is to have none where the recipe has some."""

    def __init__(self) -> None:
        super().__init__("none", *VIEWS)

    def check(self, name: str, value: Any) -> str | None:
        """Store no views as None."""
        word: str = super().check(name, value)
        return None if word == "none" else word


class Seeds(Constraint):
    """Seeds: a list, one number, `0..4` (both ends included) or `0,3`."""

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


# What decides how a cell runs; a recipe sets it for all methods, a method's table for one.
RUN: dict[str, Constraint] = {
    "batch_size": BatchSize(),
    "steps": Whole(least=1),
    "episodic": Switch(),
    "predict": Choice("before", "after"),
    "guard": Choice(*GUARDS),
    "views": Views(),
    "seeds": Seeds(),
    "settings": Many(Choice("paper", "tuned")),
}
# What a command may set: all that, and what every cell of a recipe has in common.
COMMANDS: dict[str, Constraint] = {
    "protocol": Choice(*PROTOCOLS),
    "delta": Real(above=0),
    "rounds": Whole(least=1),
    "pace": Real(above=0),
    "size": Whole(least=1, most=LARGEST),
    "crop": Real(above=0, most=1),
    "interpolation": Choice(*INTERPOLATIONS),
    "channels": Whole(least=1),
    "limit": Whole(least=1),
    "precision": Choice(*PRECISIONS),
    "model": TEXT,
    "weights": TEXT,
    "shifts": Many(TEXT),
    "severities": Many(Whole(least=1, most=5)),
    **RUN,
}
# What a recipe may say.
KEYS: dict[str, Constraint] = {
    **dict.fromkeys(("kind", "about", "data", "train"), TEXT),
    "demo": Many(TEXT),  # the methods of `steep demo`, the model without adaptation first
    **dict.fromkeys(("set", "sources", "methods"), TABLE),
    **COMMANDS,
}


def check(where: str, table: Any, known: Mapping[str, Constraint]) -> dict[str, Any]:
    """Bring the values of a table to their stored form; refuse a key nobody reads, and a value its key cannot have."""
    if not isinstance(table, Mapping):
        raise InputError(f"{where}: expected a table such as {{}}, got {table!r}")
    recipes.check_keys(where, table, known)
    try:
        return {key: known[key].check(key, value) for key, value in table.items()}
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


def choices(only: Iterable[str]) -> dict[str, set[str]]:
    """Read what --only says."""
    chosen: dict[str, set[str]] = {}
    for text in only:
        name, equals, values = text.partition("=")
        if not equals:
            raise InputError(f"--only: expected such as method=tea,tent or shift=fog, got {text!r}")
        check_known("thing to choose by in --only", CHOICES, name)
        chosen.setdefault(name, set()).update(word.strip() for word in values.split(",") if word.strip())
    return chosen


def names(spec: Mapping[str, Any], choice: str) -> set[str]:
    """Give what a cell, or the spec of a stored row, goes by where it is chosen by `choice`."""
    also = {spec["label"]} if choice == "method" and spec.get("label") else set()
    return {str(spec.get(choice)), *also}


def admits(chosen: Mapping[str, set[str]], spec: Mapping[str, Any]) -> bool:
    """Whether --only asks for a cell, or the spec of a stored row."""
    return all(values & names(spec, choice) for choice, values in chosen.items())
