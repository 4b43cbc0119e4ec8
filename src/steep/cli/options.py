"""Options that several commands share, and the check of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import torch
import typer

from steep.errors import InputError

Device: TypeAlias = Annotated[str | None, typer.Option("--device", help="Such as cuda:1 (default: cuda where it is).")]
Root: TypeAlias = Annotated[
    Path | None, typer.Option("--root", help="Where data lives (default: STEEP_DATA or the user's cache folder).")
]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first so many images of a set.")]
Only: TypeAlias = Annotated[
    list[str] | None, typer.Option("--only", metavar="NAME=VALUES", help="method=tea,tent or shift=fog; repeatable.")
]
Seeds: TypeAlias = Annotated[str | None, typer.Option("--seeds", help="0..4 or 0,3, for every method.")]
Weights: TypeAlias = Annotated[
    Path | None, typer.Option("--weights", help="A file of weights, or a folder that holds them by name.")
]


def choose_device(device: str | None) -> str:
    """Check a device before anything is loaded; None takes a GPU where there is one.

    >>> choose_device("cpu")
    'cpu'
    """
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: expected one that works here, such as cpu, got {device!r} ({reason})") from error
    return device
