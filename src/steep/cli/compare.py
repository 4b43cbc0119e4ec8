"""`steep compare`: does adapting help on your pictures?"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from steep.cli.options import (
    Classes,
    Device,
    Images,
    Mean,
    Pretrained,
    Size,
    Std,
    choose_device,
    class_names,
    comma_numbers,
)
from steep.cli.output import console, progress_bar
from steep.comparing import compare as run
from steep.comparing.compare import METHODS
from steep.data import to_device
from steep.errors import DataError, InputError
from steep.methods import SOURCE, adapt, find
from steep.predicting import LoadedModel, Pictures, load_model, open_pictures
from steep.predicting.batch_size import fitting_pictures


def compare(
    model: Annotated[str, typer.Option(help="As for steep predict: a name, hf:FOLDER or file.py:make.")],
    images: Images,
    methods: Annotated[str, typer.Option(help="Names with commas, or file.py:NAME.")] = ",".join(METHODS),
    labels: Annotated[
        Path | None, typer.Option(help="A .csv of file,class (default: folders named like classes).")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="A file, or weights that come with steep.")] = None,
    pretrained: Pretrained = False,
    size: Size = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Pictures adapted on at a time (default: by memory).")
    ] = None,
    mean: Mean = None,
    std: Std = None,
    classes: Classes = None,
    shuffle: Annotated[
        bool | None, typer.Option("--shuffle/--in-order", help="Order (default: shuffled if in class folders).")
    ] = None,
    view: Annotated[str, typer.Option(help="shift: where a mirror changes the class.")] = "mirror",
    seed: Annotated[int, typer.Option(min=0, help="Decides every random draw.")] = 0,
    precision: Annotated[str, typer.Option(help="auto (bfloat16 where that is faster), float32 or bfloat16.")] = "auto",
    device: Device = None,
) -> None:
    """Say whether adapting helps on a folder of pictures: measured by labels or, without any, estimated.

    Example: steep compare --model hf:FOLDER --images DIR

    Example: steep compare --model wrn-40-2 --weights cifar10-wrn-40-2 --images DIR --methods bn,tent --labels truth.csv
    """
    chosen, place = [find(name).name for name in methods.split(",")], choose_device(device)
    pictures = open_pictures(images)
    names, means, stds = class_names(classes), comma_numbers("--mean", mean), comma_numbers("--std", std)
    loaded = load_model(model, weights=weights, pretrained=pretrained, classes=names, mean=means, std=stds)
    order, unreadable = pictures.order(shuffle, seed), dict[int, str]()
    screen, side, source = console(), size or loaded.size, adapt(loaded.model, SOURCE, device=place)
    count = batch_size or fitting_pictures(source, pictures, side, loaded.channels)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        truth: list[int] = []
        for numbers, pixels in pictures.batches(order, side, loaded.channels, count, unreadable):
            x = to_device(pixels, place)
            if not truth:  # only now is it known how many classes the model has
                truth = _labels(loaded, pictures, labels, source(x[:1]).shape[1])
                if side is None:
                    screen.print(
                        f"the model does not say which size it takes: pictures stay as they are, {x.shape[3]} × "
                        f"{x.shape[2]}. --size 224 brings them to one",
                        style="yellow",
                    )
            yield x, torch.tensor([truth[number] for number in numbers])
        if not truth:
            raise DataError(f"none of the {len(pictures)} pictures can be read: {next(iter(unreadable.values()))}")

    with progress_bar(screen) as bar:
        progress = lambda done: bar("pictures", done, len(pictures))  # noqa: E731
        result = run(
            loaded.model, batches(), chosen, view=view, seed=seed, precision=precision, device=place, progress=progress
        )
    if unreadable:
        screen.print(f"{len(unreadable)} pictures not readable, the first: {next(iter(unreadable.values()))}")
    typer.echo(str(result))


def _labels(loaded: LoadedModel, pictures: Pictures, file: Path | None, count: int) -> list[int]:
    """Read labels from a .csv of file,class, or off the folders; −1 where none is known."""
    if file is None:
        return [-1 if label is None else label for label in pictures.labels(loaded.classes, count)[0]]
    try:
        with file.open(encoding="utf-8", newline="") as text:
            class_of = {row[0]: row[1].strip() for row in csv.reader(text) if len(row) > 1}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--labels {file}: expected a .csv of file,class ({error})") from error
    numbers = {str(n): n for n in range(count)} | {name: n for n, name in enumerate(loaded.classes)}
    truth = [numbers.get(class_of.get(name, ""), -1) for name in pictures.names]
    if max(truth) < 0:
        example = f"{pictures.names[0]},{(*loaded.classes, 0)[0]}"
        raise InputError(f"--labels {file}: expected lines such as {example}, got none of a picture and a class here")
    return truth
