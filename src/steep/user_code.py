"""Run a Python file of the user's: `file.py:NAME`, for a model or a method of their own.

This is the only way in which steep runs code that it was not installed with.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from steep.errors import InputError, SteepError, unknown

T = TypeVar("T")

# Every file that was run, by the name of its module, which no other process can import.
OPENED: dict[str, ModuleType] = {}


def split(reference: str) -> tuple[Path, str] | None:
    """Take `file.py:NAME` apart; None where a name means something else."""
    file, _, name = reference.rpartition(":")
    return (Path(file).expanduser(), name) if file.endswith(".py") else None


class _AsItIsNow(SourceFileLoader):
    """Runs a file's text, never its cached bytecode: that of an earlier text may have the same size and second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


@contextlib.contextmanager
def opened(path: Path, what: str) -> Iterator[ModuleType]:
    """Run a file and give its module; inside, imports find the files beside it. `what` begins the text of an error."""
    if not path.is_file():
        raise InputError(f"{what}: no file {path}")
    name = f"steep_user_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    loader, folder = _AsItIsNow(name, str(path)), str(path.parent.absolute())
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise InputError(f"{what}: expected a Python file, got {path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by its name
    sys.path.insert(0, folder)
    try:
        attempt(what, lambda: loader.exec_module(module))
        OPENED[name] = module
        yield module
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(folder)


def pick(module: ModuleType, name: str, what: str) -> Any:
    """Give a function or class of a module; a misspelt name is answered with those there are."""
    if not callable(getattr(module, name, None)):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown(f"{what} in {module.__file__}", name, names)
    return getattr(module, name)


def attempt(what: str, call: Callable[[], T]) -> T:
    """Call somebody else's code; whatever goes wrong in it becomes an `InputError` of one line."""
    try:
        return call()
    except SteepError:
        raise
    except (Exception, SystemExit) as error:  # an exit of theirs would end this program without a word
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        because = f" (because of {_line(first)})" if first is not error else ""
        raise InputError(f"{what}: {_line(error)}{because}") from error


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
