"""What a setting may be: each field of a method, and each option of an adapter, declares one constraint.

    lr: float = hyper(1e-3, Real(above=0))

A constraint says in words what it expects, and brings a value to the one form that is stored and compared: a whole
number becomes a float where a float is meant, a list a tuple, a number of NumPy one of Python.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers
import operator
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from steep.core.layers import KINDS
from steep.errors import InputError, UnknownNameError, check_known, either

_KEY, _LATER = "constraint", "added_later"  # of a dataclass field's metadata


class Constraint(abc.ABC):
    """The values a field may have."""

    expected: str  # in words that follow "expected"
    optional = False  # whether None is allowed too

    @abc.abstractmethod
    def normalise(self, value: Any) -> Any:
        """Bring an allowed value to the form it is stored in; raise `ValueError` or `TypeError` for any other."""

    def check(self, name: str, value: Any) -> Any:
        """Normalise the value of a field; the `ValueError` for a wrong one names the field."""
        if value is None and self.optional:
            return None
        try:
            return self.normalise(value)
        except UnknownNameError:
            raise
        except (ValueError, TypeError, OverflowError):
            expected = self.expected + (" or None" if self.optional else "")
            raise ValueError(f"{name}: expected {expected}, got {value!r}") from None


def hyper(default: Any, constraint: Constraint, *, added_later: bool = False) -> Any:
    """Declare a hyper-parameter: a dataclass field with a default and a constraint.

    One that is `added_later` than rows of its method were stored is not part of a row while it has its default: the
    row is then the one there was before, and has its key.
    """
    return dataclasses.field(default=default, metadata={_KEY: constraint, _LATER: added_later})


def added_later(settings: type) -> set[str]:
    """Name the hyper-parameters that are newer than stored rows."""
    return {field.name for field in dataclasses.fields(settings) if field.metadata.get(_LATER)}


def constraints_of(settings: type) -> dict[str, Constraint]:
    """Find the constraint of each field; without one it may be any plain data.

    A subclass that only changes a default keeps the constraint.
    """
    constraints: dict[str, Constraint] = {}
    names = {field.name for field in dataclasses.fields(settings) if field.init}  # without what a class declares
    for each in reversed(settings.__mro__):
        for field in vars(each).get("__dataclass_fields__", {}).values():
            if field.name in names:
                constraints[field.name] = field.metadata.get(_KEY) or constraints.get(field.name, Plain())
    return constraints


def normalise_fields(settings: Any, where: str = "") -> None:
    """Bring every field of a frozen dataclass to its stored form; `where` begins the `InputError` for a wrong one."""
    for name, constraint in constraints_of(type(settings)).items():
        try:
            object.__setattr__(settings, name, constraint.check(name, getattr(settings, name)))
        except UnknownNameError:
            raise
        except ValueError as error:
            raise InputError(f"{where}{error}") from None


class Plain(Constraint):
    """Any value that can be saved; numbers of NumPy, and fractions, become numbers of Python.

    >>> Plain().check("range", (np.float32(0.5), 2))
    (0.5, 2)
    """

    expected = "None, yes or no, a number, a text, or lists, tuples and tables of these"

    def normalise(self, value: Any) -> Any:
        """Take plain data, leaf by leaf."""
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, (str, int, float)):
            return value
        if isinstance(value, numbers.Real):
            return float(value)
        if type(value) in (list, tuple):
            return type(value)(map(self.normalise, value))
        if type(value) is dict and all(isinstance(key, (str, int)) for key in value):
            return {key: self.normalise(each) for key, each in value.items()}
        raise ValueError


class Real(Constraint):
    """A finite number, stored as a float.

    >>> Real(least=0, most=1).check("threshold", 1)
    1.0
    >>> Real(above=0).check("lr", -1)
    Traceback (most recent call last):
    ValueError: lr: expected a finite number above 0, got -1
    """

    def __init__(
        self,
        *,
        above: float | None = None,
        least: float | None = None,
        most: float | None = None,
        optional: bool = False,
    ) -> None:
        self.above, self.least, self.most, self.optional = above, least, most, optional
        bounds = {"above": above, "of at least": least, "of at most": most}
        words = "".join(f" {word} {bound}" for word, bound in bounds.items() if bound is not None)
        both = f" from {least} to {most}" if least is not None and most is not None else words
        self.expected = f"a {self.kind} number{both}"

    kind = "finite"

    def normalise(self, value: Any) -> float:
        """Take any real number of Python or NumPy; a bool is none."""
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError
        return self._within(float(value))

    def _within(self, number: float) -> float:
        low = (self.above is not None and number <= self.above) or (self.least is not None and number < self.least)
        if low or (self.most is not None and number > self.most):
            raise ValueError
        return number


class Whole(Real):
    """A whole number, stored as an int.

    >>> Whole(least=1).check("steps", 2.0)
    Traceback (most recent call last):
    ValueError: steps: expected a whole number of at least 1, got 2.0
    """

    kind = "whole"

    def normalise(self, value: Any) -> int:
        """Take any whole number of Python, NumPy or torch; a bool is none, and neither is 2.0."""
        if isinstance(value, bool):
            raise ValueError
        number = operator.index(value)
        self._within(number)
        return number


class Switch(Constraint):
    """Yes or no: to Python, "no" is as true as "yes".

    >>> Switch().check("episodic", "no")
    Traceback (most recent call last):
    ValueError: episodic: expected True or False, got 'no'
    """

    expected = "True or False"

    def normalise(self, value: Any) -> bool:
        """Take a bool of Python or NumPy, or 0 or 1."""
        if not isinstance(value, (int, np.bool_)) or value not in (0, 1):
            raise ValueError
        return bool(value)


class Choice(Constraint):
    """One of a few words.

    >>> Choice("batch", "source").check("statistics", "batches")
    Traceback (most recent call last):
    ValueError: statistics: expected 'batch' or 'source', got 'batches'
    """

    def __init__(self, *words: str, optional: bool = False) -> None:
        self.words, self.expected, self.optional = words, either(map(repr, words)), optional

    def normalise(self, value: Any) -> str:
        """Take the word itself."""
        if not isinstance(value, str) or value not in self.words:
            raise ValueError
        return str(value)


class Interval(Constraint):
    """Two finite numbers, the lower one first, stored as a tuple of floats.

    >>> Interval().check("start", [-1, 1])
    (-1.0, 1.0)
    """

    expected = "two finite numbers (low, high) with low < high"

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional

    def normalise(self, value: Any) -> tuple[float, float]:
        """Take a list or tuple of two."""
        low, high = map(Real().normalise, value if isinstance(value, (list, tuple)) else ())
        if not low < high:
            raise ValueError
        return low, high


class Layers(Constraint):
    """Which parameters adapt, see `steep.core.layers.select`. Several kinds are stored as a tuple.

    >>> Layers().check("params", ["norm", "linear"])
    ('norm', 'linear')
    """

    expected = '"norm", "all", layer kinds such as ["norm", "linear"], or a regular expression over parameter names'

    def normalise(self, value: Any) -> str | tuple[str, ...]:
        """Take a text that compiles, or several kinds of layers; those of a set are sorted."""
        if isinstance(value, str) and value:
            try:
                return str(re.compile(value).pattern)
            except re.error as error:
                raise ValueError from error
        kinds = tuple(value) if isinstance(value, Collection) else ()
        if not kinds or not all(isinstance(kind, str) for kind in kinds):
            raise ValueError
        check_known("layer kind in params", KINDS, *kinds)
        return tuple(map(str, sorted(kinds) if isinstance(value, (set, frozenset)) else kinds))


class Kind(Constraint):
    """Any value of one Python type.

    >>> Kind(str, "a text").check("model", 3)
    Traceback (most recent call last):
    ValueError: model: expected a text, got 3
    """

    def __init__(self, kind: type, expected: str, *, optional: bool = False) -> None:
        self.kind, self.expected, self.optional = kind, expected, optional

    def normalise(self, value: Any) -> Any:
        """Take it as it is."""
        if not isinstance(value, self.kind):
            raise ValueError
        return value


TEXT, TABLE, ANYTHING = Kind(str, "a text"), Kind(dict, "a table"), Kind(object, "anything", optional=True)
