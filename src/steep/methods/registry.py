"""The register of methods: those of this package, of other packages, and of a file of the user's."""

from __future__ import annotations

import re
import warnings
import zlib
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from steep import user_code
from steep.core.method import Look, Method
from steep.errors import InputError, SteepWarning, check_known

METHODS: dict[str, type[Method[Any]]] = {}
"""Every method by name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_+-]*")  # "tea.lr=1e-4" and "method=tea,tent" must stay readable
_SPARE = [
    Look(colour, marker)
    for marker in ("circle", "square", "diamond", "cross", "triangle-up")
    for colour in ("#332288", "#117733", "#CC6677", "#44AA99", "#661100", "#6699CC", "#B8860B")
]  # for methods that declare no look; no method of this package has one of these colours

M = TypeVar("M", bound=type[Method[Any]])


def register(method: M) -> M:
    """Make a method known by its name, so that recipes, commands and reports find it. A class decorator too.

    A package does the same without being imported first: it names the class in its entry points, in the group
    `steep.methods`.
    """
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InputError(f"method: expected a class of steep.Method, got {method!r}")
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"name of {method.__qualname__}: expected small letters, digits, - and _, got {name!r}")
    other = METHODS.get(name, method)
    if (other.__module__, other.__qualname__) != (method.__module__, method.__qualname__):
        raise InputError(f"name of {method.__qualname__}: {name!r} is already {other.__module__}.{other.__qualname__}")
    METHODS[name] = method
    return method


def register_module(module: ModuleType) -> None:
    """Register the method that a module defines."""
    for each in list(vars(module).values()):
        if isinstance(each, type) and issubclass(each, Method) and each.__module__ == module.__name__:
            register(each)


def register_installed() -> None:
    """Register what other packages offer as `steep.methods`; one that fails is warned about and left out."""
    for entry in entry_points(group="steep.methods"):
        try:
            register(entry.load())
        except Exception as error:
            lines = str(error).splitlines() or [""]
            warnings.warn(
                f"method {entry.name} of {entry.value} is left out: {type(error).__name__}: {lines[0]}",
                SteepWarning,
                stacklevel=2,
            )


def find(name: str, folder: Path | None = None) -> type[Method[Any]]:
    """Find a method by name, or in a file of the user's, which is run: `mine.py:Louder`.

    Args:
        name: of the method.
        folder: what the path of a file starts from; None: the working directory.

    >>> find("tea").name
    'tea'
    """
    reference = user_code.split(name)
    if reference is None:
        check_known("method", METHODS, name.lower())
        return METHODS[name.lower()]
    path = (folder or Path()) / reference[0]
    with user_code.opened(path, f"method {name}") as module:
        method: type[Method[Any]] = user_code.pick(module, reference[1], "method")
    return register(method)


def is_baseline(name: str | None) -> bool:
    """Tell whether a method is what others are compared with; one that is not registered here is not.

    >>> is_baseline("source"), is_baseline("tea"), is_baseline("mine")
    (True, False, False)
    """
    return name in METHODS and METHODS[name].baseline


def look_of(name: str) -> Look:
    """Give colour and marker of a method, also of one that is not registered here.

    >>> look_of("tea")
    Look(colour='#D55E00', marker='circle')
    """
    declared = vars(METHODS[name]).get("look") if name in METHODS else None  # a variant shows apart from its base
    return declared or _SPARE[zlib.crc32(name.encode()) % len(_SPARE)]
