"""Options that several commands share, and what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import torch
import typer

from steep.core.io.arguments import check_device
from steep.errors import InputError

Device: TypeAlias = Annotated[str | None, typer.Option(help="Such as cuda:1 (default: cuda where it is).")]
Root: TypeAlias = Annotated[
    Path | None, typer.Option(help="Where data lives (default: STEEP_DATA or the user's cache folder).")
]
Limit: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Only the first so many images of a set.")]
Only: TypeAlias = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUES", help="method=tea,tent or shift=fog; repeatable.")
]
Seeds: TypeAlias = Annotated[str | None, typer.Option(help="0..4 or 0,3, for every method.")]
Weights: TypeAlias = Annotated[
    Path | None, typer.Option(help="A file of weights, or a folder that holds them by name.")
]

Images: TypeAlias = Annotated[Path, typer.Option(help="A folder of pictures, or a .npy (N, H, W, C) of uint8.")]
Pretrained: TypeAlias = Annotated[bool, typer.Option("--pretrained", help="Let timm, torchvision or hf fetch theirs.")]
Size: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Resize to size × size.")]
Mean: TypeAlias = Annotated[str | None, typer.Option(help="Of the model's input, such as 0.485,0.456,0.406.")]
Std: TypeAlias = Annotated[str | None, typer.Option(help="Of the model's input, such as 0.229,0.224,0.225.")]
Classes: TypeAlias = Annotated[Path | None, typer.Option(help="A text file, one class name a line.")]


def class_names(file: Path | None) -> tuple[str, ...]:
    """Read `--classes`."""
    if file is None:
        return ()
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--classes {file}: expected a text file with one class name a line ({error})") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(set(names)) != len(names) or len(names) < 2:
        raise InputError(f"--classes {file}: expected two or more different names, got {len(names)}")
    return names


def comma_numbers(option: str, text: str | None) -> list[float] | None:
    """Read numbers with commas."""
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"{option}: expected numbers with commas, such as 0.5,0.5,0.5, got {text!r}") from None


def choose_device(device: str | None) -> str:
    """Check a device before anything is loaded; None takes a GPU where there is one.

    >>> choose_device("cpu")
    'cpu'
    """
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    return check_device("--device", device)
