"""Weights by name: where their file is, and its checksum, which goes into the key of every cell."""

from __future__ import annotations

import functools
import os
from importlib import resources
from pathlib import Path

from steep.bench.sources import UNTRAINED
from steep.data import default_root
from steep.errors import CheckpointError
from steep.files import file_sha256

_SUFFIXES = (".safetensors", ".pt", ".pth")


def find(name: str, given: Path | None = None, root: Path | None = None) -> Path | None:
    """Look for the file of some weights; None where there is none.

    Args:
        name: such as cifar10-wrn-28-10.
        given: what the caller said: a file, or a folder that holds NAME.safetensors.
        root: where data lives; weights lie in its folder `weights`.

    >>> find("untrained") is None
    True
    """
    if name == UNTRAINED:
        return None
    if given is not None and given.suffix in _SUFFIXES:
        return given
    return next((file for file in _candidates(name, given, root) if file.is_file()), None)


def missing(name: str, train: str | None, given: Path | None = None, root: Path | None = None) -> CheckpointError:
    """Build the error for weights that are nowhere, with the command that makes them."""
    if given is not None and given.suffix in _SUFFIXES:
        return CheckpointError(f"--weights {given}: no such file")
    looked = ", ".join(dict.fromkeys(str(file.parent) for file in _candidates(name, given, root)))
    make = f"Make them: steep train {train}, or give" if train else "Give"
    return CheckpointError(f"weights {name}: no {name}.safetensors in {looked}. {make} a file: --weights FILE")


@functools.lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def sha256(path: Path) -> str:
    """Give the checksum of a file, read once per process and state."""
    try:
        now = path.stat()
        return _digest(path, now.st_size, now.st_mtime_ns)
    except OSError as error:
        raise CheckpointError(f"{path}: expected a file of weights, got {error.strerror or error}") from error


def _candidates(name: str, given: Path | None, root: Path | None) -> list[Path]:
    if given is not None:
        return [given / f"{name}{suffix}" for suffix in _SUFFIXES]
    folders = [(root or default_root()) / "weights", Path("weights"), Path(".")]
    if told := os.environ.get("STEEP_WEIGHTS"):
        folders.insert(0, Path(told).expanduser())
    packaged = Path(str(resources.files("steep") / "assets"))
    return [folder / f"{name}{suffix}" for folder in (*folders, packaged) for suffix in _SUFFIXES]
