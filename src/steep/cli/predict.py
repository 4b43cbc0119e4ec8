"""`steep predict`: your model, your pictures."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

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
from steep.errors import InputError
from steep.files import explained, make_folder
from steep.methods import find
from steep.models import Normalized, checkpoints
from steep.predicting import (
    Predictions,
    PredictionStopped,
    load_model,
    merged_model,
    ood_detection,
    open_pictures,
    write_table,
)
from steep.predicting import predict as run
from steep.predicting.table import check_table, printable
from steep.recipes import assignment

_SHOWN = 10


def predict(
    model: Annotated[
        str,
        typer.Option(
            help="A name of steep models, timm:NAME, torchvision:NAME, hf:NAME or hf:FOLDER, or file.py:make."
        ),
    ],
    images: Images,
    out: Annotated[Path, typer.Option(help="The table to write, .csv or .parquet.")],
    weights: Annotated[
        str | None, typer.Option(help="A file of weights, or the name of weights that come with steep.")
    ] = None,
    method: Annotated[str, typer.Option(help="Such as tent (steep methods), or file.py:NAME.")] = "tea",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A hyper-parameter; repeatable.")
    ] = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Pictures adapted on at a time (default: by memory).")
    ] = None,
    num_classes: Annotated[int | None, typer.Option(min=2, help="Where nothing else tells.")] = None,
    classes: Classes = None,
    channels: Annotated[int | None, typer.Option(help="1 for a model of grey pictures.")] = None,
    pretrained: Pretrained = False,
    shuffle: Annotated[
        bool | None,
        typer.Option("--shuffle/--in-order", help="Order of adapting (default: shuffled if in class folders)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides every random draw.")] = 0,
    setting: Annotated[str, typer.Option(help="paper or tuned.")] = "paper",
    steps: Annotated[int, typer.Option(min=1, help="Updates on each batch.")] = 1,
    episodic: Annotated[bool, typer.Option("--episodic", help="Forget everything before each batch.")] = False,
    views: Annotated[str | None, typer.Option(help="Average answers over views: mirror or shifts.")] = None,
    unknown: Annotated[
        Path | None, typer.Option(help="Pictures of no class: says how well the energy tells them from --images.")
    ] = None,
    device: Device = None,
    save_weights: Annotated[Path | None, typer.Option(help="Write the adapted model's weights, .safetensors.")] = None,
    save_state: Annotated[Path | None, typer.Option(help="Write the adaptation, for steep.resume().")] = None,
) -> None:
    """Predict a folder of pictures with a model that adapts to them.

    With a folder for each class it also prints the accuracy, with and without adaptation. A model or a method
    given as file.py:NAME runs the code in that file; nothing else does. With --unknown it adds how well the energy
    tells the pictures of another folder from these (AUROC, FPR95), with and without adaptation.

    Example: steep predict --model wrn-40-2 --weights cifar10-wrn-40-2 --images DIR --size 32 --out preds.csv

    Example: steep predict --model hf:microsoft/resnet-50 --pretrained --images DIR --out preds.csv

    Example: steep predict --model net.py:make --weights net.pt --images DIR --method tent --set lr=1e-4 --out preds.csv
    """
    check_table(out)
    method = find(method).name  # a file is run and its method registered
    if save_weights is not None and save_weights.suffix != ".safetensors":
        raise InputError(f"--save-weights: expected a name ending in .safetensors, got {save_weights.name!r}")
    for target in (save_weights, save_state):
        if target is not None:
            with explained(target):
                make_folder(target.parent)  # now, not after hours of predicting
    known: dict[str, Any] = {"num_classes": num_classes, "classes": class_names(classes), "channels": channels}
    known |= {"mean": comma_numbers("--mean", mean), "std": comma_numbers("--std", std)}
    pictures, others = open_pictures(images), None if unknown is None else open_pictures(unknown)
    place = choose_device(device)
    loaded = load_model(model, weights=weights, pretrained=pretrained, **known)
    screen = console()
    if isinstance(loaded.model, Normalized) and mean is None:
        screen.print(f"pictures are normalised for the model: {_short(loaded.model)}")
    elif model.startswith(("timm:", "torchvision:", "hf:")) and mean is None:
        screen.print("this model says no normalisation; most need one: --mean and --std", style="yellow")
    reading: dict[str, Any] = {"size": size or loaded.size, "channels": loaded.channels, "batch_size": batch_size}
    how: dict[str, Any] = {"setting": setting, "steps": steps, "episodic": episodic, "views": views, "device": place}
    how |= {"shuffle": shuffle, "seed": seed, "hyper": dict(assignment(text) for text in sets or [])}
    stopped: PredictionStopped | None = None
    try:
        with progress_bar(screen) as progress:
            how["progress"] = partial(progress, "pictures")
            predictions = run(loaded.model, pictures, method, classes=loaded.classes, **reading, **how)
    except PredictionStopped as stop:
        stopped, predictions = stop, stop.predictions
    rows, reading["batch_size"] = predictions.rows, predictions.batch_size
    if rows:
        write_table(rows, out)
        _show(screen, predictions, method, out)
    if stopped:
        screen.print(f"stopped after {len(rows):,} of {len(pictures):,} pictures", style="yellow")
        raise stopped
    if save_state is not None:
        predictions.adapter.save(save_state)
    if save_weights is not None:
        _save_weights(screen, predictions, method, save_weights, reading)
    if others is not None:
        before, after = ood_detection(loaded.model, predictions.adapter, pictures, others, **reading)
        adapted, usual = (f"AUROC {each.auroc:.1%}, FPR95 {each.fpr95:.1%}" for each in (after, before))
        typer.echo(
            f"energy tells {after.known:,} pictures from {after.unknown:,} of no class: {adapted} with {method}, "
            f"{usual} without adaptation"
        )


def _save_weights(screen: Console, predictions: Predictions, method: str, file: Path, reading: dict[str, Any]) -> None:
    """Write what answers in a plain model as the adapted one does: with these pictures' statistics, if need be."""
    with progress_bar(screen) as progress:
        bar = partial(progress, "statistics")
        module, count = merged_model(predictions.adapter, predictions.pictures, **reading, progress=bar)
    checkpoints.save(module, file, {"adapted": method})
    measured = f", with BatchNorm statistics measured on {count:,} of the pictures" if count else ""
    screen.print(f"{file}: the adapted weights{measured}")


def _show(screen: Console, predictions: Predictions, method: str, out: Path) -> None:
    """Say what was predicted: the accuracy to standard output, the rest to standard error."""
    unreadable = [printable(name) for name in predictions.unreadable]
    count = len(predictions.rows) - len(unreadable)
    screen.print(
        f"{out}: {count:,} pictures in batches of {min(count, predictions.batch_size)}; {predictions.changed:,} have "
        "another answer than the source model's"
    )
    after, before = predictions.accuracy, predictions.accuracy_before
    if after is not None and before is not None:
        typer.echo(f"accuracy on {predictions.labelled:,}: {after:.1%} with {method}, {before:.1%} without adaptation")
    if predictions.remark:
        screen.print(printable(predictions.remark), style="yellow")
    if predictions.unadapted:
        screen.print(
            f"{len(predictions.unadapted):,} of {predictions.batches:,} batches answered without adapting, "
            f"the first because: {predictions.unadapted[0]}",
            style="yellow",
        )
    elif predictions.unused:
        screen.print(
            f"no answer is adapted: all pictures are in one batch, and {method} answers a batch before it learns from "
            "it. Give a smaller --batch-size, or a method that answers after its update",
            style="yellow",
        )
    if unreadable:
        screen.print(f"{len(unreadable)} not readable, skipped:", style="yellow")
        for name in unreadable[:_SHOWN]:
            screen.print(f"  {name}")
        if len(unreadable) > _SHOWN:
            screen.print(f"  and {len(unreadable) - _SHOWN} more; the table says which")


def _short(model: Normalized) -> str:
    mean, std = (", ".join(f"{value:.3g}" for value in part.flatten().tolist()) for part in (model.mean, model.std))
    return f"mean {mean}, std {std}"
