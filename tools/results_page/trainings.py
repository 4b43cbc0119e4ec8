"""What a page says about the trainings behind its rows: what each is called, and the command that trains it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steep import recipes
from steep.bench.rows import Row
from steep.report.rerun import toml, word
from steep.report.tables import plain

# What decides the weights, as `steep.training.TrainingSpec` has it where a recipe is silent (here without torch).
DEFAULTS: dict[str, Any] = {
    "data": None, "train_split": "train", "test_split": "test", "size": None, "channels": None, "domain": None,
    "limit": None, "model": None, "model_options": {}, "epochs": None, "batch_size": None, "lr": None,
    "warmup_epochs": 0.0, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0, "label_smoothing": 0.0, "pad": 0,
    "border": "zeros", "flip": False, "seed": 0, "precision": "auto", "channels_last": True, "threads": None,
}  # fmt: skip
_OLDER = {"border": "zeros"}  # of a spec that is older than the key


def named(trainings: Iterable[Row]) -> dict[str, str]:
    """Name each training, by its digest's beginning: its epochs, and what sets it apart from another of as many.

    >>> alike = {"data": "cifar10", "architecture": "wrn-28-10", "epochs": 40}
    >>> specs = {"a" * 64: {"batch_size": 128, "lr": 0.1}, "b" * 64: {"batch_size": 256, "lr": 0.1}}
    >>> named({**alike, "weights_sha256": digest, "spec": spec} for digest, spec in specs.items())["a" * 12]
    'aaaaaaaaaaaa of 40 epochs (trained with batch_size 128)'
    """
    alike: dict[tuple[str, str, int], list[Row]] = {}
    for row in trainings:
        alike.setdefault((row["data"], row["architecture"], row["epochs"]), []).append(row)
    names = {}
    for rows in alike.values():
        specs = [decisive(row) for row in rows]
        told = [spec for spec in specs if spec]
        keys = sorted({key for spec in told for key in spec})
        apart = [key for key in keys if any(spec.get(key) != told[0].get(key) for spec in told)]
        for row, spec in zip(rows, specs, strict=True):
            digest = row["weights_sha256"][:12]
            words = ", ".join(f"{key} {plain(spec[key])}" for key in apart if key in spec)
            names[digest] = f"{digest} of {plain(row['epochs'])} epochs" + (f" (trained with {words})" if words else "")
    return names


def retrain(row: Row) -> str | None:
    """Give the command that trains a source model as its row says, where a packaged recipe does.

    >>> spec = {"epochs": 40, "warmup_epochs": 0.0, "lr": 0.05, "pad": 4, "evaluate_every": 20}
    >>> retrain({"recipe": "train-cifar10-wrn-28-10", "spec": spec})
    'steep train train-cifar10-wrn-28-10 --set epochs=40 --set lr=0.05'
    """
    name = row.get("recipe")
    if name not in recipes.names("train"):
        return None
    usual, own = decisive({"spec": {**DEFAULTS, **recipes.read(name)}}), decisive(row)
    other = {key: own[key] for key in sorted(own) if own[key] != usual.get(key)}
    said = [f"--set {word(f'{key}={_told(value)}')}" for key, value in other.items()]
    return " ".join([f"steep train {name}", *said])


def _told(value: Any) -> str:
    """Write a value as `--set` reads it."""
    return "none" if value is None else value if isinstance(value, str) else toml(value)


def decisive(row: Row) -> dict[str, Any]:
    """Give what a row's spec says of the keys that decide weights; nothing where it has no spec."""
    spec = row.get("spec") or {}
    return _flat({key: value for key, value in {**_OLDER, **spec}.items() if key in DEFAULTS}) if spec else {}


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    options = spec.get("model_options") or {}
    inner = {f"model_options.{key}": value for key, value in options.items()}
    return {key: value for key, value in spec.items() if key != "model_options"} | inner
