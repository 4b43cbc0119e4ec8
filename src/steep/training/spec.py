"""What to train and how: one frozen, checked description, read from a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self

from steep import recipes
from steep.core.constraints import TEXT, Choice, Kind, Real, Whole, hyper, normalise_fields
from steep.data.transform import LARGEST
from steep.errors import InputError
from steep.models.loading import is_outside, short_name

Precision = Literal["auto", "bf16", "fp32"]
Store = Literal["fp16", "fp32"]
Border = Literal["zeros", "reflect"]

_COUNT = Whole(least=1, optional=True)
_SWITCH = Kind(bool, "true or false")

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
    steep.errors.InputError: recipe mine: epochs: expected a whole number of at least 1, got 0
    """

    recipe: str = hyper(MISSING, TEXT)  # its name, for people
    about: str = hyper("", TEXT)

    data: str = hyper(MISSING, TEXT)  # a name in steep.data.NAMES
    train_split: str = hyper("train", TEXT)
    test_split: str = hyper("test", TEXT)
    size: int | None = hyper(None, Whole(least=1, most=LARGEST, optional=True))  # resize to size × size
    channels: int | None = hyper(None, _COUNT)  # 3 repeats the one plane of a grey set
    domain: str | None = hyper(None, Kind(str, "a text", optional=True))  # of a set with domains
    limit: int | None = hyper(None, _COUNT)  # only the first so many pictures of each split

    model: str = hyper(MISSING, TEXT)  # a name steep.models.build or steep.models.loading.load_model takes
    model_options: Mapping[str, Any] = field(default_factory=dict)
    init: str | None = hyper(None, Kind(str, "a text", optional=True))  # pretrained, or weights to start from

    epochs: int = hyper(MISSING, Whole(least=1))
    batch_size: int = hyper(MISSING, Whole(least=2))
    lr: float = hyper(MISSING, Real(above=0))  # at its peak
    warmup_epochs: float = hyper(0.0, Real(least=0))  # the rate grows linearly over these, then falls as a half cosine
    momentum: float = hyper(0.9, Real(least=0))
    nesterov: bool = hyper(True, _SWITCH)
    weight_decay: float = hyper(0.0, Real(least=0))
    label_smoothing: float = hyper(0.0, Real(least=0))
    pad: int = hyper(0, Whole(least=0))  # rows and columns around a picture, of which a random crop keeps its old size
    border: Border = hyper("zeros", Choice("zeros", "reflect"))  # black, or the picture mirrored at its edge
    flip: bool = hyper(False, _SWITCH)  # mirror every second picture, at random
    seed: int = hyper(0, Whole(least=0, most=2**63 - 1))

    precision: Precision = hyper("auto", Choice("auto", "bf16", "fp32"))  # auto: bf16 autocast on CUDA, else fp32
    channels_last: bool = hyper(True, _SWITCH)
    compile: bool = hyper(False, _SWITCH)  # torch.compile, on CUDA alone
    threads: int | None = hyper(None, _COUNT)  # of the CPU; None: as many as torch would take
    store: Store = hyper("fp32", Choice("fp16", "fp32"))  # precision of the finished file
    evaluate_every: int = hyper(5, Whole(least=1))  # epochs between looks at the test split; the last always has one
    checkpoint_minutes: float = hyper(5.0, Real(least=0))

    def __post_init__(self) -> None:
        normalise_fields(self, where=f"recipe {self.recipe}: ")
        for name, good, expected in (
            ("model_options", isinstance(self.model_options, Mapping), "a table"),
            ("model_options", not (self.loads and self.model_options), "none for a model that is loaded, not built"),
            ("momentum", self.momentum < 1, "less than 1"),
            ("nesterov", not self.nesterov or self.momentum > 0, "false where momentum is 0"),
            ("label_smoothing", self.label_smoothing < 1, "less than 1"),
            ("warmup_epochs", self.warmup_epochs < self.epochs, f"less than epochs ({self.epochs})"),
        ):
            if not good:
                raise InputError(f"recipe {self.recipe}: {name}: expected {expected}, got {getattr(self, name)!r}")

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

    @property
    def loads(self) -> bool:
        """Whether the model comes with weights, or from a library: fine-tuned then, at its own size."""
        return self.init is not None or is_outside(self.model)

    def plain(self) -> dict[str, Any]:
        """Give every field, without the folders of a file."""
        table = {**asdict(self), "model": short_name(self.model), "init": self.init and Path(self.init).name}
        plain: dict[str, Any] = json.loads(json.dumps(table))
        return plain

    def identity(self) -> dict[str, Any]:
        """Everything that decides the weights, as plain data; two specs with one identity train the same model."""
        plain = self.plain()
        if not self.pad:
            plain["border"] = "zeros"  # there is none
        return {key: value for key, value in plain.items() if key not in _INCIDENTAL}
