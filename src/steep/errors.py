"""The few named exceptions. Every message says what was expected, what came and, where known, the fix."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection, Iterable
from typing import Any


class SteepError(Exception):
    """Base of every error steep raises on purpose."""


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


class FallbackWarning(SteepWarning):
    """A faster way to compute was asked for and cannot be taken here; it holds for all batches that follow."""


def unknown(what: str, name: str, known: Iterable[str], listing: str = "") -> UnknownNameError:
    """Build the error for a misspelt name: its near match, and the names that work or the command that lists them.

    >>> print(unknown("method", "tant", ["tea", "tent"]))
    unknown method 'tant': did you mean 'tent'? Known: tea, tent
    >>> print(unknown("method", "mine", ["tea", "tent"]))
    unknown method 'mine'. Known: tea, tent
    >>> print(unknown("recipe", "mine", ["digits", "gradual"], listing="steep recipes"))
    unknown recipe 'mine'. steep recipes lists all 2
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.65)  # two letters of three, as in tae for tea
    hint = f": did you mean {near[0]!r}?" if near else "."
    rest = f"{listing} lists all {len(names)}" if listing else f"Known: {', '.join(names)}"
    return UnknownNameError(f"unknown {what} {name!r}{hint} {rest}")


def check_known(what: str, known: Collection[str], *names: str) -> None:
    """Refuse the first of some names that is none of those that work."""
    for name in names:
        if name not in known:
            raise unknown(what, name, known)


def either(words: Iterable[str]) -> str:
    """List what is allowed, to follow "expected"."""
    words = tuple(words)
    return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"


def optional(module: str, extra: str) -> Any:
    """Import what an optional feature needs, or say what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = (error.name or module).partition(".")[0]
        raise InputError(f"{missing} is needed for this and not installed. {install_extra(extra)}") from error


def install_extra(extra: str) -> str:
    """Say how to install what an optional feature needs; steep is on no package index yet, so from a checkout."""
    return f"Run, in a checkout of steep: pip install '.[{extra}]'"
