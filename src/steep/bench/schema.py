"""Which values a row may hold, so that a damaged or foreign line is refused where it is read.

A shape is a tuple of Python types, a list of one shape for all items, `Columns`, or a table of shapes by key; a key
that ends in "?" may be missing, and keys that are not named may hold anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Columns:
    """Lists of numbers by name, as long as each other; or None, where logits were not finite."""

    names: tuple[str, ...]


Shape: TypeAlias = "tuple[type, ...] | list[Shape] | dict[str, Shape] | Columns"

_TEXT, _WHOLE, _NUMBER, _FLAG, _TABLE = (str,), (int,), (int, float), (bool,), (dict,)
_NONE = type(None)
_BINS = Columns(("counts", "confidence", "accuracy"))

SPEC: dict[str, Shape] = {
    **dict.fromkeys(("data?", "shift?", "source?", "model?", "weights?", "weights_sha256?", "method?"), _TEXT),
    **dict.fromkeys(("setting?", "protocol?", "predict?", "guard?", "precision?", "label?"), _TEXT),
    **dict.fromkeys(("severity?", "seed?", "batch_size?", "steps?"), _WHOLE),
    **dict.fromkeys(("size?", "channels?", "limit?"), (int, _NONE)),
    "sequence?": [[(str, int)]],
    "delta?": (int, float, _NONE),
    "episodic?": _FLAG,
    "hyper?": _TABLE,
}
ROW: dict[str, Shape] = {
    "schema": _WHOLE,
    "key": _TEXT,
    "spec": SPEC,
    **dict.fromkeys(("accuracy?", "error?", "loss?", "nll?", "ece?", "mce?", "brier?"), _NUMBER),
    **dict.fromkeys(("energy_before?", "energy_after?", "seconds?", "images_per_s?"), _NUMBER),
    **dict.fromkeys(("n?", "nonfinite?", "undone?"), _WHOLE),
    **dict.fromkeys(("right?", "started?", "finished?"), _TEXT),
    "reliability?": _BINS,
    "calibration?": _BINS,
    "per_class?": Columns(("count", "correct", "predicted")),
    "segments?": [{"name": _TEXT, "n": _WHOLE, "error": _NUMBER, "severity?": _WHOLE, "accuracy?": _NUMBER}],
    "data?": [{"origin?": _TEXT, "sha256?": _TEXT, "images?": _WHOLE}],
    "notes?": [_TEXT],
    "peak_memory?": {"bytes": _WHOLE},
    "env?": {"commit?": (str, _NONE), "device?": (str, _NONE), "versions?": _TABLE},
}


def misfit(value: Any, shape: Shape, name: str = "") -> str | None:
    """Say what is wrong with a value; None where it has its shape.

    >>> misfit({"n": "two"}, {"n": (int,)})
    "n: expected int, got 'two'"
    """
    if isinstance(shape, Columns):
        if value is None:
            return None
        wrong = misfit(value, {column: [_NUMBER] for column in shape.names}, name)
        uneven = not wrong and len({len(value[column]) for column in shape.names}) > 1
        return f"{name}: expected lists as long as each other" if uneven else wrong
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{name}: expected a table, got {str(value)[:40]!r}"
        for key, inner in shape.items():
            key, optional = key.removesuffix("?"), key.endswith("?")
            if key in value or not optional:
                where = f"{name}.{key}" if name else key
                if wrong := misfit(value[key], inner, where) if key in value else f"{where} is missing":
                    return wrong
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{name}: expected a list, got {str(value)[:40]!r}"
        return next((wrong for item in value if (wrong := misfit(item, shape[0], name))), None)
    if isinstance(value, shape) and (not isinstance(value, bool) or bool in shape):
        return None
    return f"{name}: expected {' or '.join(kind.__name__ for kind in shape)}, got {str(value)[:40]!r}"
