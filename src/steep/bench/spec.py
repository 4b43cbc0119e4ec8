"""A cell: everything that decides a number, frozen, hashable and with a key that is the same on every machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, get_args, get_type_hints

from steep.errors import InputError, either

Value: TypeAlias = bool | int | float | str | tuple["Value", ...] | None
Hyper: TypeAlias = tuple[tuple[str, Value], ...]

# The shape of a value in a file: a tuple of types, a list of one shape for all items, or a table of shapes by key. A
# key that ends in "?" may be missing; keys that are not named may hold anything. A set names columns: lists of numbers
# as long as each other, or None.
Shape: TypeAlias = "tuple[type, ...] | list[Shape] | dict[str, Shape] | frozenset[str]"

SEQUENCE = "sequence"  # the `shift` of a cell whose protocol runs through several; which ones is in `sequence`
CLEAN = "clean"  # the `shift` of the uncorrupted test set; its severity is 0


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run: a method on one stream of test images.

    With a protocol of `steep.data.streams.APART` a cell is one shift at one severity, from the source model. With
    another it is a whole sequence of shifts, and its row also holds the segments.
    """

    data: str  # a name of steep.data, such as cifar10-c
    shift: str  # a corruption, a target domain of pacs, CLEAN or SEQUENCE
    severity: int = 0  # 1 to 5; of a sequence the worst; 0 where there is none
    sequence: tuple[tuple[str, int], ...] = ()  # (shift, severity) in order
    source: str = ""  # the domain the model was trained on, for pacs
    model: str
    weights: str  # a name, never a path: the same weights have the same key everywhere
    weights_sha256: str = ""  # of the file; empty for untrained ones and where no file was found yet
    method: str
    setting: str = "paper"  # paper | tuned
    hyper: Hyper = ()  # every hyper-parameter of the method, sorted by name
    seed: int = 0  # of the method's random stream, and of the order where the protocol draws one
    protocol: str = "reset"  # a name of steep.data.PROTOCOLS
    delta: float | None = None  # how bursty classes come; None: of a protocol that does not ask
    rounds: int | None = None  # how often the shifts come again; None as above
    pace: float | None = None  # forward passes of the source model until the next batch comes; None as above
    batch_size: int = 200  # 0: the whole set in one batch
    steps: int = 1
    episodic: bool = False
    predict: str = "before"  # before | after the update
    views: str | None = None  # of steep.adapt; None: the image alone is answered
    guard: str = "off"  # of steep.adapt; off: as published, harmful steps are let happen
    size: int | None = None  # pixels a side; None: as the data is
    crop: float | None = None  # of picture files: the share of the short side that is cut out; None: as the set says
    interpolation: str | None = None  # of picture files; None: as the set says
    channels: int | None = None
    limit: int | None = None  # only the first so many images of every set
    precision: str = "float32"  # float32 | tf32 | bfloat16 | auto; what auto came to is in the row's env
    label: str = field(default="", compare=False)  # what a table calls the method; decides nothing

    @property
    def shifts(self) -> tuple[tuple[str, int], ...]:
        """Every (shift, severity) the cell runs through."""
        return self.sequence or ((self.shift, self.severity),)

    @property
    def weight_dtype(self) -> str:
        """The precision of frozen weights; TF32 concerns how a device multiplies, not what it stores."""
        return "float32" if self.precision == "tf32" else self.precision

    @property
    def name(self) -> str:
        """What a person calls the cell, such as `tea fog 5`."""
        where = f"{self.source} → {self.shift}" if self.source else self.shift
        if self.shift == SEQUENCE:
            where = self.protocol
        severity = f" {self.severity}" if self.severity else ""
        return f"{label_of(vars(self))} {where}{severity}" + (f" seed {self.seed}" if self.seed else "")

    def to_json(self) -> dict[str, Any]:
        """Give the cell as plain data."""
        table = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        table["hyper"] = {name: _plain(value) for name, value in self.hyper}
        # rows from before there were these keep their keys
        for name in ("rounds", "pace", "views", "crop", "interpolation"):
            if table[name] is None:
                del table[name]
        return table

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Cell:
        """Make the cell again from `to_json`."""
        known = {f.name for f in fields(cls)}
        odd = set(table) - known
        if odd:
            raise InputError(f"spec of a cell: expected the keys {sorted(known)}, got also {sorted(odd)}")
        if wrong := misfit(dict(table), SPEC):
            raise InputError(f"spec of a cell: {wrong}")
        values = {name: frozen(value) for name, value in table.items() if name != "hyper"}
        try:
            cell = cls(**values, hyper=as_hyper(table.get("hyper", {})))
            cell.key()
        except (TypeError, ValueError) as error:  # a field is missing, or a number is not finite
            raise InputError(f"spec of a cell: {error}") from error
        return cell

    def key(self) -> str:
        """Name the cell for ever: the sha256 of its canonical JSON, without what it is called."""
        table = self.to_json()
        del table["label"]
        text = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def misfit(value: Any, shape: Shape, name: str = "") -> str | None:
    """Say what is wrong with a value; None where it has its shape."""
    kind = list if isinstance(shape, list) else dict if isinstance(shape, dict) else None
    if kind is not None and not isinstance(value, kind):
        return f"{name}: expected a {'list' if kind is list else 'table'}, got {str(value)[:40]!r}"
    if isinstance(shape, frozenset):
        wrong = None if value is None else misfit(value, {column: [(int, float)] for column in sorted(shape)}, name)
        uneven = value is not None and not wrong and len({len(value[column]) for column in shape}) > 1
        return f"{name}: expected lists as long as each other" if uneven else wrong
    if isinstance(shape, list):
        return next((wrong for item in value if (wrong := misfit(item, shape[0], name))), None)
    if isinstance(shape, dict):
        for key, inner in shape.items():
            key, optional = key.removesuffix("?"), key.endswith("?")
            if key in value or not optional:
                where = f"{name}.{key}" if name else key
                if wrong := misfit(value[key], inner, where) if key in value else f"{where} is missing":
                    return wrong
        return None
    if isinstance(value, shape) and (not isinstance(value, bool) or bool in shape):
        return None
    return f"{name}: expected {either(kind.__name__ for kind in shape)}, got {str(value)[:40]!r}"


def _shape(hint: Any) -> Shape:
    kinds = get_args(hint) or (hint,)
    return (int, *kinds) if float in kinds else kinds  # 1.0 may be written 1


SPEC: dict[str, Shape] = {
    **{f"{name}?": _shape(hint) for name, hint in get_type_hints(Cell).items()},
    "sequence?": [[(str, int)]],
    "hyper?": (dict,),
}
"""The shape of a cell in a file; one of before there was a field lacks it."""


def label_of(spec: Mapping[str, Any]) -> str:
    """Name the line of a table that a cell is of."""
    return (spec.get("label") or spec.get("method") or "") + (" (tuned)" if spec.get("setting") == "tuned" else "")


def as_hyper(table: Mapping[str, Any]) -> Hyper:
    """Make hyper-parameters hashable, sorted by name."""
    return tuple(sorted((name, frozen(value)) for name, value in table.items()))


def frozen(value: Any) -> Any:
    """Turn lists into tuples, all the way down."""
    return tuple(frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
