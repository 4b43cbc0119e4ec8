"""Adapter state as one sealed file: nested plain data, with its tensors beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from steep import sealed
from steep.core.classifier import FLEETING
from steep.errors import CheckpointError

KIND = "steep adapter state"


def save(tree: dict[str, Any], path: Path) -> None:
    """Write nested plain data with tensors, whole or not at all."""
    tensors: dict[str, Tensor] = {}
    facts = _encoded(tree, tensors)
    sealed.write(path, KIND, tensors, facts)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    tensors, facts = sealed.read(path, KIND)
    tree: dict[str, Any] = _decoded(facts, tensors)
    return tree


def check_parts(saved: Any, options: set[str]) -> dict[str, Any]:
    """Refuse a file whose method, hyper-parameters or options cannot be read; give the options."""
    parts = {"method": str, "hyper": dict, "options": dict}
    for name, kind in parts.items():
        if not isinstance(saved, dict) or not isinstance(saved.get(name), kind):
            raise CheckpointError(f"state: {name}: expected a {kind.__name__}, got something else: the file is damaged")
    if unknown := saved["options"].keys() - options:
        raise CheckpointError(f"state: options: expected {sorted(options)}, got also {sorted(map(str, unknown))}")
    return dict(saved["options"])


def _encoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON has neither tensors nor tuples nor keys that are numbers: each becomes a list that begins with its kind."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return ["tensor", name]
    if isinstance(value, dict):
        return ["dict", *([key, _encoded(v, tensors)] for key, v in value.items())]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(_encoded(v, tensors) for v in value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise CheckpointError(f"state: expected tensors and plain data, got {type(value).__name__}")


def _decoded(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *items = value
    if kind == "tensor":
        return tensors[items[0]]
    if kind == "dict":
        return {key: _decoded(v, tensors) for key, v in items}
    decoded = [_decoded(v, tensors) for v in items]
    return tuple(decoded) if kind == "tuple" else decoded


def filled(saved: Mapping[str, Any], **kinds: Any) -> dict[str, Any]:
    """Add the settings that did not exist when a state was saved: they were then as their defaults are now."""
    known = {name: saved[name] for name in kinds if isinstance(saved.get(name), Mapping)}
    defaults = {name: {field.name: field.default for field in dataclasses.fields(kinds[name])} for name in known}
    return {**saved, **{name: defaults[name] | dict(settings) for name, settings in known.items()}}


def refuse_other(saved: Mapping[str, Any], identity: Mapping[str, Any], model: Mapping[str, Tensor]) -> None:
    """Refuse a saved state of another method, setting or source model.

    `identity` is what the saved state must agree on; `model` the tensors that adapt, as they are before adapting.
    """
    other = "Give the model that the adaptation began with"
    for what, expected in identity.items():
        if saved.get(what) != expected:
            if what == "source":
                raise CheckpointError(
                    "state: of another model: its frozen weights are not those given, or go by other names, as within "
                    f"torch.compile or DataParallel. {other}"
                )
            raise CheckpointError(f"state: expected the {what} {expected}, got {saved.get(what)}")
    initial = saved.get("initial")
    saved_model = initial.get("model") if isinstance(initial, Mapping) else None
    for name, tensor in model.items():
        began = saved_model.get(name) if isinstance(saved_model, Mapping) else None  # a damaged state fails later
        if name.startswith(FLEETING) or not isinstance(began, Tensor) or began.shape != tensor.shape:
            continue
        began = began.to(tensor)
        if not ((began == tensor) | (began.isnan() & tensor.isnan())).all():
            raise CheckpointError(f"state: of another model: {name} is not that of the model given. {other}")
