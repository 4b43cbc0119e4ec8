"""A classifier from anywhere: steep's own by name, timm, torchvision, Hugging Face, or a function in your own file.

Only `file.py:factory` runs code of the user's. Every other name only looks things up, and weights are read as tensors,
never as programs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steep import models, user_code
from steep.data import default_root
from steep.errors import CheckpointError, InputError, install_extra, unknown
from steep.models import checkpoints
from steep.models.normalisation import InputSpec, input_spec


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model ready for images in [0, 1], and what its weights say of the pictures it wants."""

    model: nn.Module
    classes: tuple[str, ...]  # empty: unknown
    channels: int
    size: int | None  # None: unknown


@dataclass(frozen=True)
class _Built:
    model: nn.Module
    wants: InputSpec = field(default_factory=InputSpec)  # what its library says of the pictures it was trained on
    classes: tuple[str, ...] = ()


def load_model(
    name: str,
    *,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    num_classes: int | None = None,
    classes: Sequence[str] = (),
    channels: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> LoadedModel:
    """Build a model, bring in its weights and put its input normalisation before it.

    Args:
        name: a name in `steep.models`, `timm:NAME`, `torchvision:NAME`, `hf:NAME`, `hf:FOLDER` as `save_pretrained`
            wrote it, or `file.py:factory`, a function that returns the model. This last one runs the code in that file.
        weights: a file of weights, or the name of weights that come with steep.
        pretrained: let timm, torchvision or Hugging Face download theirs.
        num_classes: number of logits, where neither `classes` nor the weights say it.
        classes: the names of the classes in order.
        channels: of the model's input, where its weights do not say it; 3 otherwise.
        mean: with `std`, one number per channel that the model wants its input normalised with. Where they are not
            given, timm's data configuration, torchvision's transforms or Hugging Face's image processor say it.
        std: see `mean`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = checkpoints.save(models.build("wrn-10-1", 7, in_channels=1), f"{folder}/net.safetensors")
    ...     loaded = load_model("wrn-10-1", weights=file, mean=[0.5], std=[0.25])
    >>> type(loaded.model).__name__, loaded.model.model.fc.out_features, loaded.channels
    ('Normalized', 7, 1)
    """
    if (mean is None) != (std is None):
        raise InputError("mean and std: expected both or neither")
    stored = checkpoints.read(find_weights(weights)) if weights is not None else None
    tensors = stored.tensors if stored is not None else {}
    metadata = stored.metadata if stored is not None else {}
    classes = tuple(classes) or tuple(map(str, _json_list(metadata.get("classes"))))
    if num_classes and classes and num_classes != len(classes):
        raise InputError(f"num_classes: expected {len(classes)}, as there are class names, got {num_classes}")
    normalized = {"mean", "std"} <= tensors.keys()  # saved with its `Normalized`
    if normalized and mean is not None:
        raise InputError("mean and std: the weights carry their own normalisation; leave --mean and --std out")
    prefix = "model." if normalized else ""
    count = num_classes or len(classes) or _length(tensors.get(prefix + "fc.weight"), 0)
    channels = channels or _length(tensors.get(prefix + "conv1.weight"), 1) or 3
    built = _build(name, count, channels, pretrained, stored)
    model = built.model
    if normalized:
        model = models.Normalized(model, tensors["mean"], tensors["std"])
    if stored is not None:
        checkpoints.copy_weights(stored, model)
    elif not classes:
        classes = built.classes
    if not normalized:
        mean, std = (mean, std) if mean is not None else (built.wants.mean, built.wants.std)
        model = model if mean is None or std is None else models.Normalized(model, mean, std)
    return LoadedModel(model=model.eval(), classes=classes, channels=channels, size=_side(metadata) or built.wants.size)


def find_weights(weights: str | os.PathLike[str] | None) -> Path:
    """Return a file of weights as it is, or the one a bare name means: made by `steep train`, or in the package.

    >>> find_weights("mine/net.pt").name
    'net.pt'
    """
    path = Path(str(weights)).expanduser()
    if path.exists() or path.name != str(weights):
        return path
    places = (default_root() / "weights", Path(str(resources.files("steep") / "assets")))
    return next((file for place in places if (file := place / f"{weights}.safetensors").is_file()), path)


def _build(name: str, count: int, channels: int, pretrained: bool, stored: checkpoints.Checkpoint | None) -> _Built:
    """Make the module a name stands for; `count` is 0 where the number of classes is unknown."""
    if (file := user_code.split(name)) is not None:
        return _Built(_from_file(*file, count))
    library, _, rest = name.partition(":")
    if library not in _LIBRARIES or not rest:
        return _Built(_from_steep(name, count, channels, stored))
    pretrained = pretrained or (library == "hf" and Path(rest).expanduser().is_dir())  # a folder brings its weights
    if not pretrained and stored is None:
        folder = ", or a folder that save_pretrained wrote (there is none of this name)" if library == "hf" else ""
        raise InputError(
            f"model {name}: expected weights. Give --weights FILE, or --pretrained to download them{folder}"
        )
    return user_code.attempt(f"model {name}", lambda: _LIBRARIES[library](rest, count, pretrained and stored is None))


def _from_steep(name: str, count: int, channels: int, stored: checkpoints.Checkpoint | None) -> nn.Module:
    if name not in models.MODELS and not name.startswith("wrn-"):
        others = ("timm:NAME", "torchvision:NAME", "hf:NAME", "file.py:factory", "wrn-DEPTH-WIDTH")
        raise unknown("model", name, [*models.MODELS, *others])
    if stored is None:
        raise InputError(f"model {name}: expected weights, got none: its answers would be noise. Give --weights FILE")
    if not count:
        raise CheckpointError(f"weights: no fc.weight in them, so they are not of a {name}")
    weights = {key: tensor for key, tensor in stored.tensors.items() if key not in ("mean", "std")}
    with torch.device("meta"):  # compared without memory first: sizes that a file names may be anything
        checkpoints.check(replace(stored, tensors=weights), models.build(name, count, in_channels=channels))
    return models.build(name, count, in_channels=channels)


def _from_file(path: Path, factory: str, count: int) -> nn.Module:
    """Run the user's file and call the function in it, with num_classes where it takes and we know them."""
    where = f"model {path}:{factory}"
    with user_code.opened(path, where) as module:
        make = user_code.pick(module, factory, "factory")
        takes_count = "num_classes" in inspect.signature(make).parameters
        model = user_code.attempt(where, lambda: make(num_classes=count) if takes_count and count else make())
    if not isinstance(model, nn.Module):
        raise InputError(f"{where}: expected it to return a torch.nn.Module, got {type(model).__name__}")
    return model


def _timm(name: str, count: int, pretrained: bool) -> _Built:
    timm = _import("timm")
    model = timm.create_model(name, pretrained=pretrained, **({"num_classes": count} if count else {}))
    return _Built(model, input_spec(model))


def _torchvision(name: str, count: int, pretrained: bool) -> _Built:
    zoo = _import("torchvision").models
    default = zoo.get_model_weights(name).DEFAULT
    classes = tuple(default.meta["categories"])
    if pretrained and count not in (0, len(classes)):
        raise InputError(f"num_classes: the pretrained {name} has {len(classes)}, got {count}")
    options = {} if pretrained or not count else {"num_classes": count}
    model = zoo.get_model(name, weights=default if pretrained else None, **options)
    return _Built(model, input_spec(default), classes)


def _huggingface(name: str, count: int, pretrained: bool) -> _Built:
    hub = _import("transformers")
    name = str(Path(name).expanduser()) if Path(name).expanduser().is_dir() else name
    # False: a model that brings code of its own is refused, instead of a prompt that offers to run it
    config = hub.AutoConfig.from_pretrained(name, trust_remote_code=False, **({"num_labels": count} if count else {}))
    auto = hub.AutoModelForImageClassification
    if pretrained:
        model = auto.from_pretrained(name, config=config, trust_remote_code=False)
    else:
        model = auto.from_config(config, trust_remote_code=False)
    try:  # the file alone: the class that it names may need libraries of its own
        wants = input_spec(hub.ImageProcessingMixin.get_image_processor_dict(name)[0])
    except OSError:  # published without one
        wants = InputSpec()
    if wants.size is None and isinstance(side := getattr(config, "image_size", None), int):
        wants = replace(wants, size=side)
    classes = tuple(str(config.id2label[i]) for i in range(config.num_labels))
    return _Built(model, wants, () if classes[0] == "LABEL_0" else classes)


_LIBRARIES: Mapping[str, Callable[[str, int, bool], _Built]] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "hf": _huggingface,
}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise InputError(f"this model needs {missing}. {install_extra('hub')}") from error


def _length(tensor: Tensor | None, dimension: int) -> int:
    """Read a size off a tensor that the file really holds: an empty or repeated one may claim any size."""
    if tensor is None or tensor.ndim <= dimension or not 0 < tensor.nbytes <= tensor.untyped_storage().nbytes():
        return 0
    return tensor.shape[dimension]


def _side(metadata: Mapping[str, str]) -> int | None:
    """Read the side of square training pictures off the metadata; None where it says nothing that makes sense."""
    shape = _json_list(metadata.get("image_shape"))
    square = len(shape) == 3 and shape[0] == shape[1] and type(shape[0]) is int and shape[0] > 0
    return shape[0] if square else None


def _json_list(text: str | None) -> list[Any]:
    try:
        value = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
