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


def find_weights(name: str, place: Path | None = None, root: Path | None = None) -> Path | None:
    """Look for the file of some weights; None where there is none.

    Args:
        name: such as cifar10-wrn-28-10.
        place: what the caller named: a file, or a folder that holds NAME.safetensors.
        root: where data lives; weights lie in its folder `weights`.

    >>> find_weights("untrained") is None
    True
    """
    return None if name == UNTRAINED else next(filter(_is_file, _candidates(name, place, root)), None)


def missing_weights(name: str, train: str, place: Path | None = None, root: Path | None = None) -> CheckpointError:
    """Build the error for weights that are nowhere, with the command that makes them."""
    candidates = _candidates(name, place, root)
    if candidates == [place]:
        return CheckpointError(f"--weights {place}: no such file")
    folders = ", ".join(dict.fromkeys(str(file.parent) for file in candidates))
    make = f"Make them: steep train {train}, or give" if train else "Give"
    return CheckpointError(f"weights {name}: no {name}.safetensors in {folders}. {make} a file: --weights FILE")


def weights_sha256(path: Path) -> str:
    """Give the checksum of a file, read once per process and state."""
    try:
        now = path.stat()
        return _digest(path, now.st_size, now.st_mtime_ns)
    except OSError as error:
        raise CheckpointError(f"{path}: expected a file of weights, got {error.strerror or error}") from error


@functools.lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long for a file
        return False


def _candidates(name: str, place: Path | None, root: Path | None) -> list[Path]:
    if place is not None and place.suffix in _SUFFIXES:
        return [place]
    folders = [place] if place else [(root or default_root()) / "weights", Path("weights"), Path()]
    if place is None:
        if variable := os.environ.get("STEEP_WEIGHTS"):
            folders.insert(0, Path(variable).expanduser())
        folders.append(Path(str(resources.files("steep") / "assets")))
    return [folder / f"{name}{suffix}" for folder in folders for suffix in _SUFFIXES]
