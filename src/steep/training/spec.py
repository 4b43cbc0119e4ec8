"""What to train and how: one frozen, checked description, read from a recipe."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin, get_type_hints

from steep import recipes
from steep.errors import InputError

Precision = Literal["auto", "bf16", "fp32"]
Store = Literal["fp16", "fp32"]
Border = Literal["zeros", "reflect"]

# Keys that say how a run is watched and kept, not what comes out of it: a run may go on with others.
_INCIDENTAL = ("recipe", "about", "store", "evaluate_every", "checkpoint_minutes", "compile")


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """Everything that decides the weights of a source model. Its fields are the keys of a `train` recipe.

    >>> spec = TrainingSpec(recipe="mine", data="digits", model="wrn-10-1", epochs=2, batch_size=64, lr=0.1)
    >>> spec.momentum, spec.precision
    (0.9, 'auto')
    >>> TrainingSpec(recipe="mine", data="digits", model="wrn-10-1", epochs=0, batch_size=64, lr=0.1)
    Traceback (most recent call last):
    steep.errors.InputError: recipe mine: epochs: expected 1 or more, got 0
    """

    recipe: str  # its name, for people
    about: str = ""

    data: str  # a name in steep.data.NAMES
    train_split: str = "train"
    test_split: str = "test"
    size: int | None = None  # resize to size × size
    channels: int | None = None  # 3 repeats the one plane of a grey set
    domain: str | None = None  # of a set with domains
    limit: int | None = None  # only the first so many pictures of each split

    model: str  # a name steep.models.build takes
    model_options: Mapping[str, Any] = field(default_factory=dict)

    epochs: int
    batch_size: int
    lr: float  # at its peak
    warmup_epochs: float = 0.0  # the rate grows linearly over these, then falls as a half cosine to zero
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    pad: int = 0  # rows and columns around a picture, of which a random crop keeps as many pixels as before
    border: Border = "zeros"  # what those show: black, or the picture mirrored at its edge ("reflect")
    flip: bool = False  # mirror every second picture, at random
    seed: int = 0

    precision: Precision = "auto"  # auto: bf16 autocast on CUDA, fp32 elsewhere
    channels_last: bool = True
    compile: bool = False  # torch.compile, on CUDA alone
    threads: int | None = None  # of the CPU; None: as many as torch would take
    store: Store = "fp32"  # precision of the finished file
    evaluate_every: int = 5  # epochs between looks at the test split; the last epoch always has one
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):
            if item.name not in ("recipe", "model_options"):
                value = _checked(f"recipe {self.recipe}: {item.name}", getattr(self, item.name), hints[item.name])
                object.__setattr__(self, item.name, value)  # 1 becomes 1.0 where a float is meant
        self._require("model_options", isinstance(self.model_options, Mapping), "a table")
        for name, low in (("epochs", 1), ("batch_size", 2), ("evaluate_every", 1), ("pad", 0), ("seed", 0)):
            self._require(name, getattr(self, name) >= low, f"{low} or more")
        for name in ("size", "channels", "limit", "threads"):
            self._require(name, getattr(self, name) is None or getattr(self, name) >= 1, "1 or more")
        self._require("lr", self.lr > 0, "more than 0")
        self._require("momentum", 0 <= self.momentum < 1, "0 to 1, without 1")
        self._require("nesterov", not self.nesterov or self.momentum > 0, "false where momentum is 0")
        self._require("weight_decay", self.weight_decay >= 0, "0 or more")
        self._require("label_smoothing", 0 <= self.label_smoothing < 1, "0 to 1, without 1")
        self._require("checkpoint_minutes", self.checkpoint_minutes >= 0, "0 or more")
        self._require("warmup_epochs", 0 <= self.warmup_epochs < self.epochs, f"0 to epochs ({self.epochs})")

    @classmethod
    def from_recipe(cls, name: str, overrides: Mapping[str, Any] | None = None) -> Self:
        """Read a packaged recipe by its name, or a .toml file of your own; `overrides` replace its keys.

        A dotted key reaches into `model_options`. A key nobody reads is refused with the valid ones.

        >>> TrainingSpec.from_recipe("train-digits", {"epochs": 3, "model_options.dropout": 0.1}).epochs
        3
        """
        table = recipes.read(name)
        if table.pop("kind") != "train":
            raise InputError(
                f"recipe {name}: expected one of kind 'train', got 'bench'. "
                f"Run: steep bench {name}. To train there are: {', '.join(recipes.names('train'))}"
            )
        short = Path(name).name.removesuffix(".toml")  # never a path: it is written into the weights
        known = [item.name for item in fields(cls) if item.name != "recipe"]
        recipes.check_keys(f"recipe {short}", table, known)
        for key, value in (overrides or {}).items():
            first, _, inner = key.partition(".")
            recipes.check_keys(f"recipe {short}", {first: value}, known)
            if inner and first == "model_options":
                table[first] = {**table.get(first, {}), inner: value}
            elif inner:
                raise InputError(f"recipe {short}: {first} has no inner keys, got {key!r}")
            else:
                table[key] = value
        needed = [key for key in ("data", "model", "epochs", "batch_size", "lr") if key not in table]
        if needed:
            raise InputError(f"recipe {short}: expected the keys {', '.join(needed)} too, got {', '.join(table)}")
        return cls(recipe=short, **table)

    def identity(self) -> dict[str, Any]:
        """Everything that decides the weights, as plain data; two specs with one identity train the same model."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.pad:
            plain["border"] = "zeros"  # there is none
        return {key: value for key, value in plain.items() if key not in _INCIDENTAL}

    def _require(self, name: str, good: bool, expected: str) -> None:
        if not good:
            raise InputError(f"recipe {self.recipe}: {name}: expected {expected}, got {getattr(self, name)!r}")


def _checked(where: str, value: Any, hint: Any) -> Any:
    """Return the value if it is of the field's type; a whole number passes for a float."""
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where}: expected one of {', '.join(get_args(hint))}, got {value!r}")
        return value
    kinds = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    if value is None and type(None) in kinds:
        return value
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) in kinds and value == value and value not in (float("inf"), float("-inf")):
        return value
    words = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false"}
    raise InputError(f"{where}: expected {words[kinds[0]]}, got {value!r}")
