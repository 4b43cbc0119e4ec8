"""The few named exceptions. Every message says what was expected, what came and, where known, the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SteepError(Exception):
    """Base of every error steep raises on purpose.

    >>> try:
    ...     raise InputError("images: expected (B, C, H, W), got (3, 32, 32)")
    ... except SteepError as error:
    ...     print(error)
    images: expected (B, C, H, W), got (3, 32, 32)
    """


class InputError(SteepError, ValueError):
    """A batch or an argument that cannot be used as it is."""


class UnknownNameError(SteepError, ValueError):
    """A name (method, hyper-parameter, model, corruption, data set, ...) that does not exist."""


class NothingToAdaptError(SteepError, ValueError):
    """The model holds no parameter or statistic of the kind the method adapts."""


class CheckpointError(SteepError, ValueError):
    """A file of weights or of adapter state that is not one, or does not fit."""


class GuardError(SteepError, RuntimeError):
    """A step that would have harmed the model; it has been undone."""


class GroupError(SteepError, RuntimeError):
    """Processes that adapt together and have lost one of them."""


class DataError(SteepError, RuntimeError):
    """A data set that is missing, damaged or not the one it claims to be."""


class SteepWarning(UserWarning):
    """Something works, but not the way the caller may think."""


def unknown(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a misspelt name, with its near match and everything that would have worked.

    >>> print(unknown("method", "tant", ["tea", "tent"]))
    unknown method 'tant': did you mean 'tent'? Known: tea, tent
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UnknownNameError(f"unknown {what} {name!r}: {hint}Known: {', '.join(names)}")
