"""What the pages say about trainings: what each is called, and the command that trains it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from steep import recipes
from steep.bench.rows import Row
from steep.report.rerun import toml
from steep.report.words import plain
from steep.training import TrainingSpec

_DECISIVE = tuple(TrainingSpec(recipe="", data="digits", model="", epochs=1, batch_size=2, lr=1.0).identity())
_OLDER = {"border": "zeros"}  # of a spec that is older than the key
_SAID = {"batch_size": "batches of {}", "border": "{} borders"}
_VALUES = {"zeros": "black", "reflect": "mirrored"}
UNRECORDED = "of an unrecorded training"
"""How a source model is named whose training left no row."""


def named(trainings: Iterable[Row]) -> dict[str, str]:
    """Name each training, by its digest's beginning: its epochs, and what sets it apart from another of as many.

    >>> alike = {"data": "cifar10", "architecture": "wrn-28-10", "epochs": 40}
    >>> specs = {"a" * 64: {"batch_size": 128, "lr": 0.1}, "b" * 64: {"batch_size": 256, "lr": 0.1}}
    >>> named({**alike, "weights_sha256": digest, "spec": spec} for digest, spec in specs.items())["a" * 12]
    'of 40 epochs (batches of 128)'
    """
    alike: dict[tuple[str, str, int], list[Row]] = {}
    for row in trainings:
        alike.setdefault((row["data"], row["architecture"], row["epochs"]), []).append(row)
    names = {}
    for rows in alike.values():
        specs = [decisive(row) for row in rows]
        known = [spec for spec in specs if spec]
        keys = sorted({key for spec in known for key in spec})
        apart = [key for key in keys if any(spec.get(key) != known[0].get(key) for spec in known)]
        for row, spec in zip(rows, specs, strict=True):
            words = ", ".join(_spoken(key, spec[key]) for key in apart if key in spec)
            text = f"of {plain(row['epochs'])} epochs" + (f" ({words})" if words else "")
            names[row["weights_sha256"][:12]] = text
    return names


def _spoken(key: str, value: Any) -> str:
    """Write a value of a spec the way people do.

    >>> _spoken("border", "reflect"), _spoken("weight_decay", 0.0005)
    ('mirrored borders', 'weight decay 0.0005')
    """
    return _SAID.get(key, key.replace("_", " ") + " {}").format(_VALUES.get(str(value), plain(value)))


def retrain(row: Row) -> str | None:
    """Give the command that trains a source model as its row says, where a packaged recipe does.

    >>> spec = {"epochs": 40, "warmup_epochs": 0.0, "lr": 0.05, "pad": 4, "evaluate_every": 20}
    >>> retrain({"recipe": "train-cifar10-wrn-28-10", "spec": spec})
    'steep train train-cifar10-wrn-28-10 --set epochs=40 --set lr=0.05'
    """
    name = row.get("recipe")
    if name not in recipes.names("train"):
        return None
    usual, spec = _flat(TrainingSpec.from_recipe(str(name)).identity()), decisive(row)
    changed = {key: spec[key] for key in sorted(spec) if spec[key] != usual.get(key)}
    return " ".join(
        [f"steep train {name}", *(f"--set {shlex.quote(f'{key}={_set(v)}')}" for key, v in changed.items())]
    )


def _set(value: Any) -> str:
    """Write a value as `--set` reads it."""
    return "none" if value is None else value if isinstance(value, str) else toml(value)


def decisive(row: Row) -> dict[str, Any]:
    """Give what a row's spec says of the keys that decide weights; nothing where it has no spec."""
    spec = row.get("spec") or {}
    return _flat({key: value for key, value in {**_OLDER, **spec}.items() if key in _DECISIVE}) if spec else {}


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    options = spec.get("model_options") or {}
    inner = {f"model_options.{key}": value for key, value in options.items()}
    return {key: value for key, value in spec.items() if key != "model_options"} | inner
