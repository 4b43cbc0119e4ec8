"""Where files of weights lie: what `steep train` wrote, what the caller names, and what comes with steep."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from steep.data import default_root
from steep.errors import CheckpointError

UNTRAINED = "untrained"  # weights of a model as initialised with seed 0: for trying a grid out
_SUFFIXES = (".safetensors", ".pt", ".pth")


def find_weights(name: str, place: Path | None = None, root: Path | None = None) -> Path | None:
    """Look for the file of some weights by name, such as cifar10-wrn-28-10; None where there is none.

    `place` is what the caller named: a file, or a folder that holds NAME.safetensors. `root` is where data lives;
    weights lie in its folder `weights`.
    """
    return None if name == UNTRAINED else next(filter(os.path.isfile, _candidates(name, place, root)), None)


def weights_file(weights: str | os.PathLike[str]) -> Path:
    """Return a file as it is, or the one that a bare name means; a path that does not exist where there is none."""
    path = Path(weights).expanduser()
    is_name = path.name == str(weights) and not path.exists()
    return (find_weights(path.name) if is_name else None) or path


def missing_weights(name: str, train: str, place: Path | None = None, root: Path | None = None) -> CheckpointError:
    """Build the error for weights that are nowhere, with the command that makes them."""
    candidates = _candidates(name, place, root)
    if candidates == [place]:
        return CheckpointError(f"--weights {place}: no such file")
    folders = ", ".join(dict.fromkeys(str(file.parent) for file in candidates))
    make = f"Make them: steep train {train}, or give" if train else "Give"
    return CheckpointError(f"weights {name}: no {name}.safetensors in {folders}. {make} a file: --weights FILE")


def _candidates(name: str, place: Path | None, root: Path | None) -> list[Path]:
    if place is not None and place.suffix in _SUFFIXES:
        return [place]
    if place is not None:
        folders = [place]
    else:
        named = os.environ.get("STEEP_WEIGHTS")
        folders = [Path(named).expanduser()] if named else []
        folders += [(root or default_root()) / "weights", Path("weights"), Path()]
        folders.append(Path(str(resources.files("steep") / "assets")))
    return [folder / f"{name}{suffix}" for folder in folders for suffix in _SUFFIXES]
